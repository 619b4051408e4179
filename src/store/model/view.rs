//! A lock at a moment as others see it.

use std::time::Duration;

use super::moment::Moment;
use super::{Ended, Hold};
use crate::lock::{About, Fence};
use crate::view::{Ending, Holder, Outcome, Past, ServerTime, Standing, State, View, Waiter};

impl Moment<'_> {
    /// With at most so many holders in full, and the waiters if asked for.
    pub(super) fn view(&self, holders_at_most: usize, with_waiters: bool) -> View {
        let mut live: Vec<&Hold> = self.live_holds().collect();
        live.sort_by_key(|hold| (hold.deadline, &hold.token));
        let standing = |hold: &Hold| match hold.standing {
            Standing::Held if self.deleted => Standing::Revoked,
            standing => standing,
        };
        let holders: Vec<Holder> = live
            .into_iter()
            .take(holders_at_most)
            .map(|hold| Holder {
                id: id(&hold.token),
                owner: hold.owner.clone(),
                mode: hold.mode,
                about: About::from_lines(&hold.about),
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
            _ if is(Standing::Held) => State::Held,
            _ if is(Standing::Revoked) => State::Revoked,
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
            about: About::from_lines(&place.about),
            since: ServerTime(place.since),
        });
        View {
            now: ServerTime(self.now),
            state,
            mode: self.lock.mode.filter(|_| self.live),
            ttl: until.map(|until| Duration::from_millis(until.saturating_sub(self.now))),
            fence: Some(self.lock.fence).filter(|&fence| fence > 0).map(Fence),
            holder_count: if self.live { count(self.lock.holds.len()) } else { 0 },
            holders,
            waiter_count: count(self.lock.queue.len()),
            waiters: if with_waiters { waiters.collect() } else { Vec::new() },
            past: Vec::new(),
        }
    }

    /// What became of the last holds; those too that have ended since anything was written.
    pub(super) fn past(&self) -> Vec<Past> {
        let known = self.lock.written.is_some();
        let mut expired: Vec<&Hold> =
            self.lock.holds.iter().filter(|hold| known && hold.deadline < self.now).collect();
        expired.sort_by_key(|hold| (hold.deadline, &hold.token));
        let expired = expired.into_iter().filter_map(Ended::expired);
        self.lock.past.iter().cloned().chain(expired).map(Past::from).collect()
    }
}

impl Ended {
    /// A hold that nobody has released until its deadline; one that cools was, and is on record.
    pub(super) fn expired(hold: &Hold) -> Option<Self> {
        let ending = match hold.standing {
            Standing::Held => Ending::Expired,
            Standing::Revoked => Ending::Revoked,
            Standing::Cooling => return None,
        };
        Some(Self::of(hold, ending, hold.deadline, Outcome::Unknown))
    }

    pub(super) fn of(hold: &Hold, ending: Ending, at: u64, outcome: Outcome) -> Self {
        Self {
            ending,
            at,
            outcome: outcome.to_string(),
            id: id(&hold.token),
            acquired: hold.acquired,
            fence: hold.fence,
            mode: hold.mode,
            by: hold.by.clone(),
            about: hold.about.clone(),
        }
    }
}

impl From<Ended> for Past {
    fn from(ended: Ended) -> Self {
        Self {
            ending: ended.ending,
            at: ServerTime(ended.at),
            outcome: ended.outcome.as_str().into(),
            id: ended.id,
            acquired: ServerTime(ended.acquired),
            fence: Fence(ended.fence),
            mode: ended.mode,
            by: Some(ended.by).filter(|by| !by.is_empty()),
            about: About::from_lines(&ended.about),
        }
    }
}

fn id(token: &str) -> String {
    token.chars().take(8).collect()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
