//! Why members cannot vote, for messages.

use super::Acquisition;
use crate::rules::quorum::MemberAnswer;
use crate::rules::quorum::member_state::MemberState;
use crate::rules::servers::Began;
use crate::rules::{Instant, ServerTime, UserMessage, show, show_up};

impl Acquisition {
    /// The members that nominate the request but are not old enough, and why. `names` are the
    /// members' in order.
    pub(crate) fn too_young<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> Vec<(usize, UserMessage)> {
        let longest = self.members.longest_lease(self.lease);
        let mut young = Vec::new();
        for (number, (name, state)) in names.zip(self.members.iter()).enumerate() {
            let age = state.age(now);
            if state.nominated().is_some() && age < longest {
                let began = state.run.as_ref().map_or(Began::Started, |run| run.began);
                let (for_, of) = (show(age), show_up(longest));
                let fault = UserMessage::new(format!(
                    "{name} {began} {for_} ago and may have forgotten a lease of {of}"
                ));
                let rest = show_up(longest.saturating_sub(age));
                young.push((number, fault.with_remedy(format!("try again in {rest}"))));
            }
        }
        young
    }

    /// The members whose clocks keep them from voting, and how far these are off. If the request
    /// `has_failed` because no majority shows which clocks are wrong, those that are ahead are
    /// taken for wrong. `names` are the members' in order.
    pub(crate) fn wrong_clocks<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        has_failed: bool,
    ) -> Vec<(usize, UserMessage)> {
        let (members, majority) = (&self.members, self.majority);
        let refusals =
            members.iter().map(|state| members.refusals(state.largest_number())).max().unwrap_or(0);
        let most = if has_failed { refusals.clamp(1, majority) } else { majority };
        let is_ahead = |state: &MemberState| members.refusals(state.largest_number()) >= most;
        let clocks =
            members.iter().filter(|state| !is_ahead(state)).filter_map(|state| state.clock);
        let clock = clocks.max().unwrap_or(ServerTime(0));
        let (mut ahead, mut behind) = (Vec::new(), Vec::new());
        for (number, (name, state)) in names.zip(members.iter()).enumerate() {
            if is_ahead(state) {
                let by = show(ServerTime(state.largest_number() / 1_000).since(clock));
                ahead.push((number, format!("clock of {name} is {by} ahead of other servers")));
            } else if let Some(MemberAnswer::AheadOfClock(by, _)) = state.last_reply {
                let by = show(by);
                behind.push((number, format!("clock of {name} is {by} behind a fencing token")));
            }
        }
        // Those that are behind vote once the others show which clocks are ahead.
        let wrong = if ahead.is_empty() { behind } else { ahead }.into_iter();
        wrong
            .map(|(number, what)| (number, UserMessage::new(what).with_remedy("correct the clock")))
            .collect()
    }
}
