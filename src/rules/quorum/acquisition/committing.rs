//! The second step: a hold with one fencing token on enough members.

use super::{Acquisition, AttemptEnd, AttemptPhase, AttemptStep};
use crate::rules::quorum::member_state::MemberState;
use crate::rules::quorum::{Held, MemberAnswer};
use crate::rules::{Fence, Instant, Slot};

/// How far a fencing token may leap past a larger one at first, and how often that doubles.
const FIRST_LEAP: u64 = 256;
const DOUBLINGS: u32 = 4;

impl Acquisition {
    /// Asks every idle member for a hold, with a fencing token that is larger than those that the
    /// members have given, as far as known.
    pub(super) fn commit(&mut self, slot: Option<Slot>, now: Instant) {
        let last = self.members.believed().map(MemberState::fence).max();
        let next = Fence(last.map_or(1, |last| last.0.saturating_add(1)));
        self.start_commit((next, slot), 0, now);
    }

    pub(super) fn start_commit(&mut self, held: Held, raises: u32, now: Instant) {
        self.has_met = true;
        self.ask_all(Some((held, raises)), now);
    }

    pub(super) fn committing(
        &mut self,
        since: Instant,
        majority_at: Option<Instant>,
        (held, raises): (Held, u32),
        now: Instant,
    ) -> Option<AttemptStep> {
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
        self.phase = AttemptPhase::Asking { since, majority_at, hold: Some((held, raises)) };
        // Other requests may see these holds on a majority, and leave if they do not wait. Giving
        // the holds up therefore needs more patience.
        let patience = self.patience(since, majority_at);
        let least = if granted >= self.majority { since } else { since + self.io_timeout / 4 };
        let until = patience.max(least);
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
            state.round == round && matches!(state.last_reply, Some(MemberAnswer::AheadOfClock(..)))
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
