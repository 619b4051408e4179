//! The first step: a position in the queue of every member, and whether enough of them nominate the
//! request.

use super::{Acquisition, AttemptEnd, AttemptPhase, AttemptStep, NOMINATION_LASTS};
use crate::rules::quorum::MemberAnswer;
use crate::rules::quorum::majority::{blocking, most_common};
use crate::rules::quorum::member_state::MemberState;
use crate::rules::quorum::merge::merge;
use crate::rules::{Answer, Instant, Mode, State, Ticket, View};

impl Acquisition {
    /// Asks every idle member for a position in its queue.
    pub(super) fn propose(&mut self, now: Instant) {
        self.ask_all(None, now);
    }

    pub(super) fn proposing(
        &mut self,
        since: Instant,
        majority_at: Option<Instant>,
        now: Instant,
    ) -> Option<AttemptStep> {
        if let Some(end) = self.refusal() {
            return Some(AttemptStep::End(end));
        }
        // The members agreed on it before enough of them had told the time.
        if self.ticket.is_some_and(|ticket| self.members.refuse(ticket.0)) {
            self.ticket = None;
            self.agree_on_ticket();
            self.propose(now);
            return None;
        }
        // A keeper asks for the hold that it takes over. Whether the servers are old enough was
        // decided when they gave it.
        let held = most_common(&self.given().collect::<Vec<_>>());
        let holding = self.members.distinct(|state| state.held(self.round) == held);
        if let Some(held) = held.filter(|_| holding >= self.majority && self.ticket.is_none()) {
            return Some(AttemptStep::End(AttemptEnd::Granted(held)));
        }
        // Only an agreed ticket supersedes.
        if let Some(slot) = self.may_commit(now)
            && (self.ticket.is_some() || !self.supersedes)
        {
            self.commit(slot, now);
            return None;
        }
        let spoken = |state: &MemberState| {
            state.has_spoken(self.round)
                && !matches!(
                    state.last_reply,
                    None | Some(MemberAnswer::Failed(_) | MemberAnswer::AheadOfClock(..))
                )
                && !self.members.is_ahead(state)
        };
        let answered = self.members.distinct(spoken);
        let open = self.open();
        let majority_at = majority_at.or((answered >= self.majority).then_some(now));
        self.phase = AttemptPhase::Asking { since, majority_at, hold: None };
        // Members that have not answered could only change the decision if they nominate the
        // request.
        let nominating = self.members.distinct(|state| state.nominated().is_some());
        let until = match majority_at {
            Some(_) if nominating + open < self.majority => now,
            _ => self.patience(since, majority_at),
        };
        if open > 0 && now < until {
            return Some(AttemptStep::Wait(until));
        }
        let in_time = now < self.started + self.io_timeout;
        if answered < self.majority && self.has_met && in_time {
            self.pause(now);
            return None;
        }
        // A holder that one member names has the lock, even if the others that know it are down.
        if answered < self.majority && !self.is_named() {
            return Some(AttemptStep::End(AttemptEnd::TooFew(answered)));
        }
        self.has_met |= answered >= self.majority;
        if let Some(held) = held {
            self.start_commit(held, 0, now);
            return None;
        }
        if self.ticket.is_none() {
            self.agree_on_ticket();
            self.propose(now);
            return None;
        }
        self.not_nominated(now)
    }

    /// The largest ticket that any member gave becomes the request's, unless most of them refuse
    /// it.
    pub(super) fn agree_on_ticket(&mut self) {
        let largest = self.members.believed().filter_map(|state| state.ticket).max();
        self.ticket = self.ticket.or(largest).or(Some(Ticket(1)));
    }

    /// What to do with an agreed ticket and too few nominations.
    pub(super) fn not_nominated(&mut self, now: Instant) -> Option<AttemptStep> {
        let mut view = merge(&self.members.views(), self.members.0.len(), true);
        let nominates =
            |state: &MemberState| state.nominated().is_some() && !self.members.is_ahead(state);
        let voting = self.members.voting(MemberState::proposal, self.lease, now).len();
        let too_young = self.members.distinct(nominates) >= self.majority && voting < self.majority;
        let in_time = now < self.started + self.io_timeout;
        if self.waits {
            // Members that nominate it do not agree on a free slot: others are taking or freeing them.
            if self.nominations(now).is_some() && in_time {
                self.pause(now);
                return None;
            }
            let proposals = || self.members.iter().filter_map(MemberState::proposal);
            let mut positions: Vec<u64> = proposals().map(|proposal| proposal.position).collect();
            positions.sort_unstable();
            let position = positions.get(self.majority - 1).or(positions.last());
            let position = position.copied().unwrap_or(1);
            let sleep = proposals().map(|it| it.sleep).min().unwrap_or(NOMINATION_LASTS);
            let too_few = (too_young && !self.is_named()).then_some(voting);
            return Some(AttemptStep::End(AttemptEnd::Queued { view, position, sleep, too_few }));
        }
        if too_young && !self.is_named() {
            // One that has not answered may still have a vote.
            if self.open() > 0 && in_time {
                return Some(AttemptStep::Wait(self.started + self.io_timeout));
            }
            return Some(AttemptStep::End(AttemptEnd::TooFew(voting)));
        }
        if self.is_lost() || !in_time || too_young {
            // The request itself is in the queues.
            view.unlisted_waiters = view.unlisted_waiters.saturating_sub(1);
            return Some(AttemptStep::End(AttemptEnd::Refused(Box::new(Answer::Busy(view)))));
        }
        self.pause(now);
        None
    }

    /// Asks again after a pause.
    fn pause(&mut self, now: Instant) {
        let pause = self.undecided.pause().mul_f64(0.5 + self.share as f64 / f64::from(1 << 17));
        self.phase = AttemptPhase::Pausing { until: now + pause };
    }

    /// Whether any member names a holder that keeps the request out: one that nominates it shows
    /// holders that it may join.
    fn is_named(&self) -> bool {
        // One that is asked again may nominate it again.
        let keeps_out = |state: &&MemberState| state.nominated().is_none() && !state.has_nominated;
        let others = self.members.iter().filter(keeps_out);
        others.filter_map(MemberState::view).any(|view| view.state != State::Free)
    }

    /// Whether another request has the lock, or will get it first. A holder counts only if enough
    /// members have it: one that too few have may give up.
    fn is_lost(&self) -> bool {
        let kept_out = |state: &MemberState| state.proposal().is_some_and(|it| it.kept_out);
        let too_many = blocking(self.members.0.len());
        if self.members.distinct(kept_out) >= too_many {
            return true;
        }
        // Not all of many holders are listed, so they cannot be compared.
        let crowded = |state: &MemberState| {
            state.view().is_some_and(|view| view.unlisted_holders > 0 && self.excludes(view))
        };
        self.members.distinct(crowded) >= too_many
            || self.members.known().is_some_and(|known| self.excludes(&known))
    }

    /// Whether the holders in a view exclude the request.
    fn excludes(&self, view: &View) -> bool {
        match (view.state, self.mode) {
            (State::Free, _) => false,
            (State::Held, Mode::Shared) if view.mode == Some(Mode::Shared) => false,
            (State::Held, mode @ Mode::Slots(slots)) if view.mode == Some(mode) => {
                view.holder_count() >= u64::from(slots.get())
            }
            _ => true,
        }
    }
}
