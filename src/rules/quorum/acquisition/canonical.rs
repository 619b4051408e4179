//! One form for all requests that behave the same from now on, so that the checker finds few states:
//! times count from now, random numbers are fixed, and what is only shown is blank.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::super::seat::{Said, Seat};
use super::{Acquisition, Phase, UNDECIDED};
use crate::rules::instant::Instant;
use crate::rules::lock::Fence;
use crate::rules::lock::view::View;
use crate::rules::request::{Answer, Place, Ticket};

/// After this time, a server is old enough for any lease.
const OLD: Duration = Duration::from_secs(10);

impl Acquisition {
    /// The ticket on which a majority agreed.
    pub(crate) fn agreed_ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    /// Moves all times to a clock that shows this much less.
    pub(crate) fn shift(&mut self, back: Duration) {
        self.each_time(|time| *time = *time - back);
    }

    fn each_time(&mut self, mut change: impl FnMut(&mut Instant)) {
        change(&mut self.started);
        for run in self.seats.0.iter_mut().filter_map(|seat| seat.run.as_mut()) {
            change(&mut run.since);
        }
        match &mut self.phase {
            Phase::Placing { since, majority_at } | Phase::Settling { since, majority_at, .. } => {
                change(since);
                majority_at.iter_mut().for_each(change);
            }
            Phase::Pausing { until } | Phase::Resting { until } => change(until),
            Phase::Ended => {}
        }
    }

    /// Past times become multiples of `tick` ago: less than a tick takes no time.
    pub(crate) fn make_canonical(&mut self, now: Instant, tick: Duration) {
        let (pauses, rests) = match self.phase {
            Phase::Pausing { .. } => (true, false),
            Phase::Resting { .. } | Phase::Ended => (false, true),
            _ => (false, false),
        };
        self.each_time(|time| {
            let age = now.since(*time);
            *time = *time + Duration::from_nanos((age.as_nanos() % tick.as_nanos()) as u64);
            if now.since(*time) > OLD {
                *time = now - OLD;
            }
        });
        // It does not matter exactly when a short pause ends.
        if let (true, Phase::Pausing { until }) = (pauses, &mut self.phase) {
            *until = (*until).min(now + Duration::from_millis(10));
        }
        if rests {
            (self.started, self.has_met) = (now, false);
        }
        let round = self.round;
        (self.round, self.random, self.undecided) = (1, 0, UNDECIDED);
        if let Phase::Settling { raises, .. } = &mut self.phase {
            *raises = (*raises).min(1);
        }
        let waits = self.waits;
        for seat in &mut self.seats.0 {
            seat.round = u64::from(seat.round == round);
            match &mut seat.said {
                Said::Placed(place) => {
                    place.ticket = Ticket(0);
                    make_place_canonical(place, tick);
                    if waits {
                        // A waiter depends only on whether the member names any holder.
                        place.view.holders.clear();
                        (place.view.mode, place.view.holder_count) = (None, 0);
                    }
                }
                Said::Refused(Answer::Busy(view) | Answer::Queued { view, .. }) => {
                    view.fence = None;
                    make_view_canonical(view);
                }
                _ => {}
            }
        }
    }

    /// Whether an order or a reply belongs to the present round.
    pub(crate) fn is_present(&self, round: u64) -> bool {
        self.round == round
    }

    pub(crate) fn each_fence(&mut self, change: &mut dyn FnMut(&mut u64)) {
        if let Phase::Settling { fence, .. } = &mut self.phase {
            change(&mut fence.0);
        }
        for seat in &mut self.seats.0 {
            match &mut seat.said {
                Said::Placed(Place { called, view, .. }) => {
                    let fences = called.iter_mut().chain(&mut view.fence);
                    fences.for_each(|fence| change(&mut fence.0));
                }
                Said::Granted(fence) => change(&mut fence.0),
                _ => {}
            }
        }
    }

    pub(crate) fn each_ticket(&mut self, change: &mut dyn FnMut(&mut u64)) {
        let seats = self.seats.0.iter_mut().filter_map(|seat| seat.ticket.as_mut());
        self.ticket.iter_mut().chain(seats).for_each(|ticket| change(&mut ticket.0));
    }

    /// Hashes what the request knows of a member, except its number.
    pub(crate) fn hash_seat(&self, member: usize, hasher: &mut impl Hasher) {
        let Seat { under_way, said, round, ticket, clock, run } = &self.seats.0[member];
        let since = run.as_ref().map(|run| run.since);
        (under_way, said, round, ticket, clock, since).hash(hasher);
    }

    /// Puts the members into another order. Each gets the ID of its number.
    pub(crate) fn reorder(&mut self, order: &[usize], id: impl Fn(usize) -> String) {
        self.seats.0 = order.iter().map(|&member| self.seats.0[member].clone()).collect();
        for (member, seat) in self.seats.0.iter_mut().enumerate() {
            if let Some(run) = &mut seat.run {
                run.id = id(member);
            }
        }
    }
}

/// Keeps what a request may do with a place.
pub(crate) fn make_place_canonical(place: &mut Place, tick: Duration) {
    let ticks = place.sleep.as_nanos().div_ceil(tick.as_nanos()) as u32;
    (place.sleep, place.position) = (tick * ticks, 0);
    make_view_canonical(&mut place.view);
}

/// Keeps what a request may do with a view, but for the last fencing token.
pub(crate) fn make_view_canonical(view: &mut View) {
    for holder in &mut view.holders {
        holder.owner.clear();
        let lease = holder.deadline.since(holder.renewed);
        (holder.acquired, holder.renewed) = (view.now, view.now);
        (holder.deadline, holder.fence) = (view.now + lease, Fence(0));
    }
    (view.ttl, view.waiter_count) = (None, 0);
    view.life.clear();
    view.waiters.clear();
    view.history.clear();
}
