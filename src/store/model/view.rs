//! A lock at a moment as others see it.

use std::time::Duration;

use super::Hold;
use super::moment::{FIRST, Moment};
use crate::lock::view::{HoldState, Holder, ServerTime, State, View, Waiter};
use crate::lock::{ClientInfo, Fence};
use crate::text::printable;

impl Moment<'_> {
    /// For a reply to one that waits or is refused, with those whose leases last longest.
    pub(super) fn brief_view(&self) -> View {
        let live = self.live_holds().count();
        self.view(live.saturating_sub(FIRST), FIRST, false)
    }

    /// With at most so many holders in full, from one on, and the waiters if asked for.
    pub(super) fn view(
        &self,
        holders_from: usize,
        holders_at_most: usize,
        with_waiters: bool,
    ) -> View {
        let mut live: Vec<&Hold> = self.live_holds().collect();
        live.sort_by_key(|hold| (hold.deadline, &hold.token));
        let standing = |hold: &Hold| match self.standing(hold) {
            HoldState::Held if self.deleted => HoldState::Revoked,
            standing => standing,
        };
        let holder_count = count(live.len());
        let holders: Vec<Holder> = live
            .into_iter()
            .skip(holders_from)
            .take(holders_at_most)
            .map(|hold| Holder {
                id: id(&hold.token),
                owner: hold.owner.clone(),
                mode: hold.mode,
                client: ClientInfo::from_lines(&hold.about),
                fence: Fence(hold.fence),
                acquired: ServerTime(hold.acquired),
                renewed: ServerTime(hold.renewed),
                deadline: ServerTime(hold.deadline),
                standing: standing(hold),
            })
            .collect();
        let is = |standing| holders.iter().any(|holder| holder.standing == standing);
        let state = match (self.live, self.foreign()) {
            (false, false) => State::Free,
            (false, true) => State::Foreign,
            _ if is(HoldState::Held) => State::Held,
            _ if is(HoldState::Revoked) => State::Revoked,
            _ => State::Cooling,
        };
        let until = match self.live {
            true => self.lock.holds.iter().map(|hold| hold.deadline).max(),
            false => self.lock.guard.as_ref().and_then(|guard| guard.until),
        };
        let alive = self.lock.queue.iter().filter(|place| place.alive >= self.now);
        let waiters = alive.map(|place| Waiter {
            id: id(&place.token),
            mode: place.mode,
            client: ClientInfo::from_lines(&place.about),
            since: ServerTime(place.since),
        });
        View {
            now: ServerTime(self.now),
            state,
            mode: self.lock.mode.filter(|_| self.live),
            ttl: until.map(|until| Duration::from_millis(until.saturating_sub(self.now))),
            fence: Some(self.lock.fence).filter(|&fence| fence > 0).map(Fence),
            life: self.lock.life.clone(),
            holder_count,
            holders,
            waiter_count: count(self.lock.queue.len()),
            waiters: if with_waiters { waiters.collect() } else { Vec::new() },
            history: Vec::new(),
        }
    }
}

pub(super) fn id(token: &str) -> String {
    printable(&token.chars().take(8).collect::<String>())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
