//! The lock as others see it.

use std::time::Duration;

use super::lock::{Hold, QueueEntry};
use super::transaction::Transaction;
use crate::rules::lock::clients;
use crate::rules::{Fence, HoldState, Holder, ServerTime, State, Token, View};
use crate::text::printable;

/// How many holders a reply to a waiter lists. The waiter can remind a server that lost its data of
/// them; those whose leases last longest matter most.
const MAX_REMINDED: usize = 3;

impl Transaction<'_> {
    /// A hold, as others see it.
    pub(super) fn shown_hold(&self, hold: &Hold) -> Holder {
        Holder {
            id: id_of(&hold.token),
            owner: hold.owner.clone(),
            closed_for: hold.closed_for.clone(),
            mode: hold.mode,
            client: hold.client.clone(),
            fence: Fence(hold.fence),
            acquired: ServerTime(hold.acquired),
            waited: waited(hold.since, hold.acquired),
            renewed: ServerTime(hold.renewed.unwrap_or(hold.acquired)),
            deadline: ServerTime(hold.deadline),
            state: match self.hold_state(hold) {
                HoldState::Held if self.deleted => HoldState::Revoked,
                state => state,
            },
            slot: hold.slot,
        }
    }

    /// The lock with up to `holders_at_most` holders, from the one at `holders_from`. Only
    /// `inspect` fills in the waiters and the history.
    pub(super) fn view(&self, holders_from: usize, holders_at_most: usize) -> View {
        let mut live: Vec<&Hold> = self.live_holds().collect();
        live.sort_unstable_by(|one, other| one.by_deadline(other));
        let shown = live.get(holders_from..).unwrap_or_default();
        let shown = &shown[..holders_at_most.min(shown.len())];
        // Collected from a slice, so that it has no spare capacity: a list has thousands of these.
        let holders: Vec<Holder> = shown.iter().map(|hold| self.shown_hold(hold)).collect();
        let state = match (self.live, self.foreign()) {
            (false, false) => State::Free,
            (false, true) => State::Foreign,
            (true, _) => State::of(&holders).unwrap_or(State::Cooling),
        };
        let until = match self.live {
            true => self.lock.holds.iter().map(|hold| hold.deadline).max(),
            false => self.lock.guard.as_ref().and_then(|guard| guard.until),
        };
        View {
            now: ServerTime(self.now),
            state,
            mode: self.lock.mode.filter(|_| self.live),
            ttl: until.map(|until| Duration::from_millis(until.saturating_sub(self.now))),
            is_of_rlock: state == State::Foreign && self.guard_is_of_rlock(),
            fence: Some(self.lock.fence).filter(|&fence| fence > 0).map(Fence),
            generation: self.lock.generation.clone(),
            unlisted_holders: (live.len() - shown.len()) as u64,
            holders,
            unlisted_waiters: self.lock.queue.len() as u64,
            skipped: self.lock.skipped.clone().map(Box::new),
            ..View::default()
        }
    }

    fn guard_is_of_rlock(&self) -> bool {
        self.lock.guard.as_ref().is_some_and(|guard| Token::is_of_rlock(&guard.value))
    }

    /// For a reply to a request that waits or is refused.
    pub(super) fn brief_view(&self) -> View {
        let live = self.live_holds().count();
        self.view(live.saturating_sub(MAX_REMINDED), MAX_REMINDED)
    }
}

/// A waiter, as others see it.
pub(super) fn shown_waiter(waiter: &QueueEntry) -> clients::Waiter {
    clients::Waiter {
        id: id_of(&waiter.token),
        mode: waiter.mode,
        client: waiter.client.clone(),
        since: ServerTime(waiter.since),
        next: waiter.next,
    }
}

/// The first 8 characters of a token: enough to tell holds apart, but not to release one.
pub(super) fn id_of(token: &str) -> String {
    printable(&token.chars().take(8).collect::<String>())
}

/// How long a holder waited for its grant.
pub(super) fn waited(since: Option<u64>, acquired: u64) -> Option<Duration> {
    since.map(|since| ServerTime(acquired).since(ServerTime(since)))
}
