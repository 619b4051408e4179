//! The first step: a place in the queue of every member, and whether enough of them call the request.

use super::{Acquisition, CALL_LASTS, End, Order, Phase, Step};
use crate::rules::instant::Instant;
use crate::rules::lock::Mode;
use crate::rules::lock::view::{State, View};
use crate::rules::quorum::majority::most_common;
use crate::rules::quorum::merge::merge;
use crate::rules::quorum::seat::{Said, Seat};
use crate::rules::request::{Part, Ticket};

impl Acquisition {
    /// Asks every idle member for a place in its queue.
    pub(crate) fn place(&mut self, now: Instant, orders: &mut Vec<Order>) {
        self.round += 1;
        self.phase = Phase::Placing { since: now, majority_at: None };
        for member in 0..self.seats.0.len() {
            self.ask_to_place(member, orders);
        }
    }

    pub(crate) fn ask_to_place(&mut self, member: usize, orders: &mut Vec<Order>) {
        self.ask(member, Part::Place(self.ticket), orders);
    }

    pub(crate) fn placing(
        &mut self,
        since: Instant,
        majority_at: Option<Instant>,
        now: Instant,
        orders: &mut Vec<Order>,
    ) -> Option<Step> {
        if let Some(end) = self.refusal() {
            return Some(Step::End(end));
        }
        // The members agreed on it before enough of them had told the time.
        if self.ticket.is_some_and(|ticket| self.seats.refuse(ticket.0)) {
            self.ticket = None;
            self.agree_on_ticket();
            self.place(now, orders);
            return None;
        }
        // A keeper asks for the hold that it takes over. Whether the servers are old enough was decided
        // when they gave it.
        let held = most_common(&self.held_fences().collect::<Vec<_>>());
        let holding = self.seats.distinct(|seat| seat.held(self.round) == held);
        if let Some(fence) = held.filter(|_| holding >= self.required && self.ticket.is_none()) {
            return Some(Step::End(End::Granted(fence)));
        }
        // Only an agreed ticket supersedes.
        if self.is_called(now) && (self.ticket.is_some() || !self.supersedes) {
            self.settle(now, orders);
            return None;
        }
        let spoken = |seat: &Seat| {
            seat.has_spoken(self.round)
                && !matches!(seat.said, Said::Failed(_) | Said::Behind(_) | Said::Nothing)
                && !self.seats.is_ahead(seat)
        };
        let answered = self.seats.distinct(spoken);
        let open = self.open();
        let majority_at = majority_at.or((answered >= self.needed()).then_some(now));
        self.phase = Phase::Placing { since, majority_at };
        // Members that have not answered could only change the decision if they call the request.
        let calling = self.seats.distinct(|seat| seat.called().is_some());
        let until = match majority_at {
            Some(_) if calling + open < self.required => now,
            _ => self.patience(since, majority_at),
        };
        if open > 0 && now < until {
            return Some(Step::Wait(until));
        }
        let in_time = now < self.started + self.io_timeout;
        if answered < self.majority && self.has_met && in_time {
            self.pause(now);
            return None;
        }
        // A holder that one member names has the lock, even if the others that know it are down.
        if answered < self.needed() && !self.is_named() {
            return Some(Step::End(End::TooFew(answered)));
        }
        self.has_met |= answered >= self.majority;
        if let Some(fence) = held {
            self.settle_with(fence, 0, now, orders);
            return None;
        }
        if self.ticket.is_none() {
            self.agree_on_ticket();
            self.place(now, orders);
            return None;
        }
        self.not_called(now)
    }

    /// The largest ticket that any member gave becomes the request's, unless most of them refuse it.
    pub(crate) fn agree_on_ticket(&mut self) {
        let largest = self.seats.believed().filter_map(|seat| seat.ticket).max();
        self.ticket = self.ticket.or(largest).or(Some(Ticket(1)));
    }

    /// What to do with an agreed ticket and too few calls.
    pub(crate) fn not_called(&mut self, now: Instant) -> Option<Step> {
        let mut view = merge(&self.seats.views(), self.seats.0.len(), true);
        let calls = |seat: &Seat| seat.called().is_some() && !self.seats.is_ahead(seat);
        let has_place = |seat: &Seat| matches!(seat.said, Said::Placed(_));
        let voting = self.seats.voting(has_place, self.lease, now);
        let too_young = self.seats.distinct(calls) >= self.required && voting < self.required;
        if self.waits {
            let places = || {
                self.seats.iter().filter_map(|seat| match &seat.said {
                    Said::Placed(place) => Some(place),
                    _ => None,
                })
            };
            let mut positions: Vec<u64> = places().map(|place| place.position).collect();
            positions.sort_unstable();
            let position = positions.get(self.required - 1).or(positions.last());
            let (position, sleep) = (
                position.copied().unwrap_or(1),
                places().map(|place| place.sleep).min().unwrap_or(CALL_LASTS),
            );
            let too_young = too_young && !self.is_named();
            return Some(Step::End(End::Queued { view, position, sleep, too_young }));
        }
        let in_time = now < self.started + self.io_timeout;
        if too_young && !self.is_named() {
            return Some(self.too_few(voting, now));
        }
        if self.is_lost() || !in_time || too_young {
            // The request itself is in the queues.
            view.waiter_count = view.waiter_count.saturating_sub(1);
            return Some(Step::End(End::Busy(view)));
        }
        self.pause(now);
        None
    }

    /// Only `usable` members could be used, unless one that has not answered still does.
    fn too_few(&self, usable: usize, now: Instant) -> Step {
        let until = self.started + self.io_timeout;
        if self.open() > 0 && now < until {
            return Step::Wait(until);
        }
        Step::End(End::TooFew(usable))
    }

    /// Asks again after a pause.
    fn pause(&mut self, now: Instant) {
        let pause = self.undecided.pause().mul_f64(0.5 + self.random_share() / 2.0);
        self.phase = Phase::Pausing { until: now + pause };
    }

    /// Whether any member names a holder.
    fn is_named(&self) -> bool {
        self.seats.iter().filter_map(Seat::view).any(|view| view.state != State::Free)
    }

    /// Whether another request has the lock, or will get it first. A holder counts only if enough
    /// members have it: one that too few have may give up.
    fn is_lost(&self) -> bool {
        let kept_out = |seat: &Seat| matches!(&seat.said, Said::Placed(place) if place.kept_out);
        let servers = self.seats.0.len();
        if self.seats.distinct(kept_out) > servers - self.required {
            return true;
        }
        // Not all of many holders are listed, so they cannot be compared.
        let crowded = |seat: &Seat| {
            seat.view().is_some_and(|view| {
                view.holder_count > view.holders.len() as u64 && self.excludes(view)
            })
        };
        self.seats.distinct(crowded) > servers - self.required
            || self.seats.known().is_some_and(|known| self.excludes(&known))
    }

    /// Whether the holders in a view exclude the request.
    fn excludes(&self, view: &View) -> bool {
        match (view.state, self.mode) {
            (State::Free, _) => false,
            (State::Held, Mode::Shared) if view.mode == Some(Mode::Shared) => false,
            (State::Held, mode @ Mode::Slots(slots)) if view.mode == Some(mode) => {
                view.holder_count >= u64::from(slots.get())
            }
            _ => true,
        }
    }
}
