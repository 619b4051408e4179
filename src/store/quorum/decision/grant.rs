//! Whether a majority granted a request, and if not, why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::merge::{free_like, merge};
use super::votes::Votes;
use crate::duration::show;
use crate::lock::Fence;
use crate::lock::view::{State, View};
use crate::report::Fault;
use crate::store::server::Run;
use crate::store::{Answer, Failure};
use crate::system::clock::Instant;

/// A member's answer to a request, and the run of the server program that gave it.
#[derive(Clone, Debug)]
pub(in crate::store::quorum) struct Vote {
    pub(in crate::store::quorum) answer: Answer,
    pub(in crate::store::quorum) run: Option<Run>,
}

impl Vote {
    /// Whether the member granted the request, even if its grant does not count.
    pub(in crate::store::quorum) fn is_granted(&self) -> bool {
        matches!(self.answer, Answer::Granted { .. })
    }

    fn uptime(&self, now: Instant) -> Duration {
        self.run.as_ref().map_or(Duration::ZERO, |run| now.since(run.since))
    }
}

/// The votes on one request so far.
///
/// A server that was restarted may have forgotten a lease, so its grants do not count until it has
/// been up for longer than any lease can last. Redlock has an operator delay such restarts instead:
/// <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#performance-crash-recovery-and-fsync>
///
/// Two URLs may lead to the same server. Its run ID reveals this, and it gets one vote.
pub(in crate::store::quorum) struct Tally<'a> {
    votes: &'a Votes<Vote>,
    required: usize,
    now: Instant,
    /// The longest lease that a restarted server may have forgotten, as far as can be known: the
    /// one that is requested, and those of the holders that other members know.
    longest_lease: Duration,
}

/// Why a request was not granted.
pub(in crate::store::quorum) enum NotGranted {
    /// `Nested` or `Upgrade`, which no server will change.
    Impossible(Answer),
    /// Only this number of members can vote, which is too few.
    TooFew(usize),
    /// The lock is held, or several clients asked at once and none of them has a majority.
    Busy { view: View, is_split: bool },
}

impl<'a> Tally<'a> {
    /// `lease` is the length of the requested lease, and `required` how many members must grant it.
    pub(in crate::store::quorum) fn of(
        votes: &'a Votes<Vote>,
        lease: Duration,
        required: usize,
        now: Instant,
    ) -> Self {
        let views = votes.values().filter_map(|(_, vote)| match &vote.answer {
            Answer::Busy(view) => Some(view),
            _ => None,
        });
        let holders = views.flat_map(|view| &view.holders);
        let leases = holders.map(|holder| holder.deadline.since(holder.renewed));
        let longest_lease = leases.max().unwrap_or_default().max(lease);
        Self { votes, required, now, longest_lease }
    }

    /// Whether further votes cannot change the decision.
    pub(in crate::store::quorum) fn is_decided(&self) -> bool {
        self.granting() >= self.required || self.refusing() > self.votes.servers() - self.required
    }

    /// The fencing token that each member gave whose grant counts, if enough members granted it.
    pub(in crate::store::quorum) fn fences_if_granted(&self) -> Option<BTreeMap<usize, Fence>> {
        let fences = self.votes.values().filter_map(|(number, vote)| match vote.answer {
            Answer::Granted { fence } if self.counts(vote) => Some((number, fence)),
            _ => None,
        });
        (self.granting() >= self.required).then(|| fences.collect())
    }

    /// Why the request was not granted. `is_undone`: every member that may have granted it has
    /// confirmed that it is undone, so its token may be used again.
    pub(in crate::store::quorum) fn not_granted(&self, is_undone: bool) -> NotGranted {
        let (servers, required) = (self.votes.servers(), self.required);
        let mut answers = self.votes.values().map(|(_, vote)| &vote.answer);
        if let Some(own) = answers.find(|it| matches!(it, Answer::Nested | Answer::Upgrade)) {
            return NotGranted::Impossible(own.clone());
        }
        let views: Vec<View> = self
            .votes
            .values()
            .filter_map(|(_, vote)| match &vote.answer {
                Answer::Busy(view) => Some(view.clone()),
                _ => None,
            })
            .collect();
        let (granting, refusing) = (self.granting(), self.refusing());
        // A holder that one member names has the lock, even if the others that know it are down.
        let is_held = views.iter().any(|view| view.state != State::Free);
        if !is_held && refusing <= servers - required && granting + refusing < required {
            return NotGranted::TooFew(granting + refusing);
        }
        let granted = self.votes.count(Vote::is_granted);
        let free = views.first().map(free_like).into_iter().cycle().take(granted);
        let answered: Vec<View> = views.iter().cloned().chain(free).collect();
        let any_young = self.votes.count(|vote| self.is_young(vote)) > 0;
        let is_split =
            is_undone && !any_young && merge(&answered, servers, false).state == State::Free;
        NotGranted::Busy { view: merge(&views, servers, true), is_split }
    }

    /// The members whose grants do not count yet, and why. `names` are the members' in order.
    pub(in crate::store::quorum) fn too_young<'b>(
        &self,
        names: impl Iterator<Item = &'b str>,
    ) -> Vec<(usize, Failure)> {
        let mut young = Vec::new();
        for (number, (name, vote)) in names.zip(&self.votes.votes).enumerate() {
            let Some(Ok(vote)) = vote else { continue };
            if self.is_young(vote) {
                let (uptime, longest) = (vote.uptime(self.now), self.longest_lease);
                let fault = Fault::new(format!(
                    "{name} started {} ago and may have forgotten a lease of {}, so it cannot vote \
                     yet",
                    show(uptime),
                    show(longest)
                ));
                let rest = show(longest.saturating_sub(uptime));
                let fault = fault.with_remedy(format!("try again in {rest}"));
                young.push((number, Failure::Unavailable(fault)));
            }
        }
        young
    }

    fn granting(&self) -> usize {
        self.distinct(|vote| self.counts(vote))
    }

    fn refusing(&self) -> usize {
        self.distinct(|vote| !vote.is_granted())
    }

    fn counts(&self, vote: &Vote) -> bool {
        vote.is_granted() && vote.uptime(self.now) >= self.longest_lease
    }

    fn is_young(&self, vote: &Vote) -> bool {
        vote.is_granted() && !self.counts(vote)
    }

    /// How many different servers have a vote that satisfies `is`.
    fn distinct(&self, is: impl Fn(&Vote) -> bool) -> usize {
        let voting = self.votes.values().filter(|(_, vote)| is(vote));
        let runs: BTreeSet<_> =
            voting.map(|(_, vote)| vote.run.as_ref().map(|run| &run.id)).collect();
        runs.len()
    }
}

/// An answer, for the verbose log.
pub(in crate::store::quorum) fn describe(answer: &Answer) -> String {
    match answer {
        Answer::Granted { fence } => format!("granted, fencing token {fence}"),
        Answer::Busy(view) | Answer::Queued { view, .. } => view.to_string(),
        Answer::Nested => "held by an enclosing command".into(),
        Answer::Upgrade => "held shared by an enclosing command".into(),
        Answer::Over(why) => format!("request ended: the lock {why}"),
        Answer::Split { .. } => "free".into(),
    }
}
