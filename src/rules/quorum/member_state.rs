//! What the members of a quorum have replied to a request, and which replies count.

use std::collections::BTreeMap;
use std::time::Duration;

use super::merge::{free_like, merge};
use super::votes::Votes;
use crate::rules::model::lock::{DAY, LONGEST_TTL};
use crate::rules::quorum::{Held, MemberAnswer, Nomination, Proposal};
use crate::rules::servers::Run;
use crate::rules::{Answer, Fence, Instant, ServerTime, Ticket, View};

/// What is under way to a member. A member does one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum UnderWay {
    Propose,
    Commit,
    /// It waits for a message to the waiter.
    Listening,
}

/// One member, as a request knows it.
#[derive(Clone, Debug, Default, Hash)]
pub struct MemberState {
    pub(super) under_way: Option<UnderWay>,
    /// Whether the last attempt to listen to it failed.
    pub(super) is_deaf: bool,
    pub last_reply: Option<MemberAnswer>,
    /// Whether that nominated the request, and the member was asked again since.
    pub(super) has_nominated: bool,
    /// The round in which it gave that.
    pub round: u64,
    /// The last ticket that it has given.
    pub(super) ticket: Option<Ticket>,
    /// What its clock last showed.
    pub(super) clock: Option<ServerTime>,
    /// The run of the server that answered last, since it started or was promoted.
    pub run: Option<Run>,
}

impl MemberState {
    pub(super) fn proposal(&self) -> Option<&Proposal> {
        match &self.last_reply {
            Some(MemberAnswer::Proposed(proposal)) => Some(proposal),
            _ => None,
        }
    }

    /// What the member said when it nominated the request, if it does.
    pub(super) fn nominated(&self) -> Option<&Nomination> {
        self.proposal()?.nominated.as_ref()
    }

    /// The hold that the member has given in this round.
    pub(super) fn held(&self, round: u64) -> Option<Held> {
        match self.answer(round)? {
            Answer::Granted { fence, slot } => Some((*fence, *slot)),
            _ => None,
        }
    }

    /// The last fencing token that the member has given, as far as known; 0 if there is none.
    pub(super) fn fence(&self) -> Fence {
        match &self.last_reply {
            Some(MemberAnswer::Proposed(proposal)) => {
                let given = proposal.nominated.as_ref().map_or(0, |nominated| nominated.fence.0);
                proposal.view.fence.unwrap_or(Fence(0)).max(Fence(given.saturating_sub(1)))
            }
            Some(MemberAnswer::Answer(Answer::Granted { fence, .. })) => *fence,
            _ => Fence(0),
        }
    }

    /// The larger of its last ticket and its last fencing token.
    pub(super) fn largest_number(&self) -> u64 {
        self.fence().0.max(self.ticket.map_or(0, |ticket| ticket.0))
    }

    /// The answer of this round to the request: a grant, or what refuses it.
    pub(super) fn answer(&self, round: u64) -> Option<&Answer> {
        match &self.last_reply {
            Some(MemberAnswer::Answer(answer)) if self.round == round => Some(answer),
            _ => None,
        }
    }

    pub(super) fn has_failed(&self, round: u64) -> bool {
        self.round == round
            && matches!(
                self.last_reply,
                Some(MemberAnswer::Failed(_) | MemberAnswer::AheadOfClock(..))
            )
    }

    /// Whether the member has spoken in this round. One that listens has nothing to add.
    pub(super) fn has_spoken(&self, round: u64) -> bool {
        self.round == round && self.last_reply.is_some()
            || self.under_way == Some(UnderWay::Listening)
    }

    pub(super) fn view(&self) -> Option<&View> {
        match &self.last_reply {
            Some(MemberAnswer::Proposed(proposal)) => Some(&proposal.view),
            Some(MemberAnswer::Answer(Answer::Busy(view))) => Some(view),
            _ => None,
        }
    }

    /// How long the server has been the master that it is; zero if that is unknown.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.run.as_ref().map_or(Duration::ZERO, |run| now.since(run.since))
    }
}

/// All members.
///
/// A server that was restarted or promoted may have forgotten a lease, so its reply does not count
/// until that was longer ago than any lease can last. Redlock has an operator delay such restarts instead:
/// <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#performance-crash-recovery-and-fsync>
///
/// Two URLs may lead to the same server. Its run ID reveals this, and it counts once.
///
/// A server whose clock is far ahead proposes tickets and fencing tokens that the others refuse. If
/// most of them do, its replies do not count.
#[derive(Clone, Debug, Hash)]
pub struct Members(pub Vec<MemberState>);

impl Members {
    pub(super) fn new(members: usize) -> Self {
        Self(vec![MemberState::default(); members])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &MemberState> {
        self.0.iter()
    }

    /// The longest lease that a restarted or promoted server may have forgotten, as far as can be known: the
    /// requested one, and those of the holders that other members know. None is longer than a week.
    pub(super) fn longest_lease(&self, lease: Duration) -> Duration {
        let holders = self.iter().filter_map(MemberState::view).flat_map(|view| &view.holders);
        holders
            .map(|holder| holder.deadline.since(holder.renewed))
            .max()
            .unwrap_or_default()
            .min(Duration::from_millis(LONGEST_TTL))
            .max(lease)
    }

    /// How many members refuse this ticket or fencing token, because it is more than a day ahead of
    /// their clocks.
    pub(super) fn refusals(&self, number: u64) -> usize {
        let latest = |clock: ServerTime| clock.0.saturating_add(DAY).saturating_mul(1_000);
        self.distinct(|state| state.clock.is_some_and(|clock| number > latest(clock)))
    }

    /// Whether most of the members refuse this ticket or fencing token.
    pub(super) fn refuse(&self, number: u64) -> bool {
        self.refusals(number) > self.0.len() / 2
    }

    /// Whether most of the members refuse what this one proposes.
    pub(super) fn is_ahead(&self, state: &MemberState) -> bool {
        self.refuse(state.largest_number())
    }

    /// The members that are not ahead of most of the others.
    pub(super) fn believed(&self) -> impl Iterator<Item = &MemberState> {
        self.iter().filter(|state| !self.is_ahead(state))
    }

    /// What different servers said that are not ahead of most of the others, and old enough for a
    /// lease of this length.
    pub(super) fn voting<'m, T>(
        &'m self,
        said: impl Fn(&'m MemberState) -> Option<T>,
        lease: Duration,
        now: Instant,
    ) -> Vec<T> {
        let longest = self.longest_lease(lease);
        let votes = |state: &&MemberState| state.age(now) >= longest && !self.is_ahead(state);
        by_server(self.iter().filter(votes).filter_map(|state| Some((state, said(state)?))))
    }

    /// How many different servers satisfy `is`.
    pub(super) fn distinct(&self, is: impl Fn(&MemberState) -> bool) -> usize {
        by_server(self.iter().filter(|state| is(state)).map(|state| (state, ()))).len()
    }

    /// The views of the members that gave one.
    pub(super) fn views(&self) -> Vec<View> {
        self.iter().filter_map(MemberState::view).cloned().collect()
    }

    /// The lock as the members show it, with only the holders that enough of them list. It assumes
    /// nothing about members without a view.
    pub(super) fn known(&self) -> Option<View> {
        let mut views = self.views();
        let free = free_like(views.first()?);
        views.resize(self.0.len(), free);
        Some(View { unlisted_holders: 0, ..merge(&views, self.0.len(), false) })
    }

    /// The answers for `Votes::too_few`.
    pub(super) fn votes(&self, round: u64) -> Votes<()> {
        let mut votes = Votes::new(self.0.len());
        for (number, state) in self.iter().enumerate() {
            votes.asked[number] = true;
            votes.votes[number] = match &state.last_reply {
                _ if !state.has_spoken(round) => None,
                Some(MemberAnswer::Failed(failure)) => Some(Err(failure.clone())),
                _ => Some(Ok(())),
            };
        }
        votes
    }
}

/// One of the values for each server.
fn by_server<'m, T>(values: impl Iterator<Item = (&'m MemberState, T)>) -> Vec<T> {
    let by_run = values.map(|(state, value)| (state.run.as_ref().map(|run| &run.id), value));
    by_run.collect::<BTreeMap<_, _>>().into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Holder;

    #[test]
    fn no_server_can_claim_a_lease_of_more_than_a_week() {
        let mut members = Members::new(3);
        let week = Duration::from_millis(LONGEST_TTL);
        for (deadline, longest) in [(60_000, Duration::from_secs(60)), (u64::MAX, week)] {
            let holder = Holder { deadline: ServerTime(deadline), ..Holder::default() };
            let view = View { holders: vec![holder], ..View::default() };
            members.0[1].last_reply = Some(MemberAnswer::Answer(Answer::Busy(view)));
            assert_eq!(members.longest_lease(Duration::from_secs(8)), longest);
        }
    }
}
