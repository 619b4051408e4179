//! The second step: a hold with one fencing token on enough members.

use super::{Acquisition, AttemptEnd, AttemptPhase, AttemptStep};
use crate::rules::quorum::member_state::{LastReply, MemberState};
use crate::rules::quorum::{Held, QuorumOp};
use crate::rules::{Fence, Instant, Slot};

/// How far a fencing token may leap past a larger one at first, and how often that doubles.
const FIRST_LEAP: u64 = 256;
const DOUBLINGS: u32 = 4;

impl Acquisition {
    /// Asks every idle member for a hold.
    pub(crate) fn commit(&mut self, slot: Option<Slot>, now: Instant) {
        self.start_commit((self.next_fence(), slot), 0, now);
    }

    /// A fencing token that is larger than those that the members have given, as far as known.
    pub(crate) fn next_fence(&self) -> Fence {
        Fence(
            self.members
                .believed()
                .map(MemberState::fence)
                .max()
                .map_or(1, |last| last.0.saturating_add(1)),
        )
    }

    pub(crate) fn start_commit(&mut self, held: Held, raises: u32, now: Instant) {
        (self.round, self.has_met) = (self.round + 1, true);
        self.phase = AttemptPhase::Committing { since: now, majority_at: None, held, raises };
        for member in 0..self.members.0.len() {
            self.ask_to_commit(member);
        }
    }

    pub(crate) fn ask_to_commit(&mut self, member: usize) {
        if let AttemptPhase::Committing { held, .. } = self.phase {
            self.ask(member, QuorumOp::Commit(self.ticket, held));
        }
    }

    pub(crate) fn committing(&mut self, now: Instant) -> Option<AttemptStep> {
        let AttemptPhase::Committing { since, majority_at, held, raises } = self.phase else {
            return None;
        };
        let round = self.round;
        let given = self.members.voting(|state| state.held(round), self.lease, now);
        let committed = given.iter().filter(|it| **it == held).count();
        if committed >= self.majority {
            return Some(AttemptStep::End(AttemptEnd::Granted(held)));
        }
        if let Some(end) = self.refusal() {
            return Some(AttemptStep::End(end));
        }
        let granted = given.len();
        let answered =
            self.members.distinct(|state| state.round == round && state.has_spoken(round));
        let majority_at = majority_at.or((answered >= self.majority).then_some(now));
        self.phase = AttemptPhase::Committing { since, majority_at, held, raises };
        // Other requests may see these holds on a majority, and leave if they do not wait. Giving
        // the holds up therefore needs more patience.
        let patience = self.patience(since, majority_at);
        let until = match granted >= self.majority {
            true => patience,
            false => patience.max(since + self.io_timeout / 4),
        };
        let open = self.open();
        if open > 0 && now < until && committed + open >= self.majority {
            return Some(AttemptStep::Wait(until));
        }
        let largest = self.given().map(|it| it.0).max().unwrap_or(held.0);
        if granted >= self.majority && largest > held.0 && now < self.started + 2 * self.io_timeout
        {
            // Another hold got a larger token meanwhile. Several clients may be outbidding each
            // other, so each leaps by its own share: the furthest then gets one token everywhere.
            let leap = (self.share * (FIRST_LEAP << raises.min(DOUBLINGS))) >> 16;
            self.start_commit((Fence(largest.0.saturating_add(leap)), held.1), raises + 1, now);
            return None;
        }
        if open > 0 && now < until && granted + open >= self.majority {
            return Some(AttemptStep::Wait(until));
        }
        // A member that refuses a fencing token as too large would refuse the next one too, unless
        // the large one came from a member that no longer counts. One that has not answered may show
        // that it does not.
        let servers = self.members.0.len();
        let usable = self.members.iter().filter(|state| !state.has_failed(round)).count();
        let refuses = |state: &MemberState| {
            state.round == round && matches!(state.last_reply, LastReply::AheadOfClock(_))
        };
        let is_final =
            self.members.iter().any(refuses) && self.members.believed().count() == servers;
        if is_final && open == 0 && usable < self.majority {
            return Some(AttemptStep::End(AttemptEnd::TooFew(usable)));
        }
        // Too few: this ends the holds that the others gave.
        self.agree_on_ticket();
        self.propose(now);
        if now >= self.started + self.io_timeout {
            return self.not_nominated(now);
        }
        None
    }
}
