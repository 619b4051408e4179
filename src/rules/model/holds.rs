//! Holds: finding them, their leases, and the guard that represents them.

use super::lock::{Guard, Hold, MAX_LISTED};
use super::transaction::Transaction;
use crate::rules::{HoldState, Mode};

impl Transaction<'_> {
    /// This token's hold, in any state; `None` if there is none or its lease has expired.
    pub(super) fn unexpired_hold(&self, token: &str) -> Option<&Hold> {
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        hold.filter(|hold| (self.live || self.foreign()) && hold.deadline >= self.now)
    }

    /// This token's hold if it holds the lock: unexpired and neither revoked nor cooling.
    pub(super) fn valid_hold(&self, token: &str) -> Option<&Hold> {
        self.unexpired_hold(token).filter(|hold| self.hold_state(hold) == HoldState::Held)
    }

    pub(super) fn hold_mut(&mut self, token: &str) -> Option<&mut Hold> {
        self.lock.holds.iter_mut().find(|hold| hold.token == token)
    }

    pub(super) fn live_holds(&self) -> impl Iterator<Item = &Hold> {
        self.lock.holds.iter().filter(|hold| self.live && hold.deadline >= self.now)
    }

    /// Makes the guard show that the hold with the latest deadline is live.
    pub(super) fn set_guard_to_latest(&mut self) {
        let latest = self.lock.holds.iter().max_by(|one, other| one.by_deadline(other));
        if let Some(Hold { token, deadline, .. }) = latest {
            self.lock.written = Some(token.clone());
            self.lock.guard = Some(Guard { value: token.clone(), until: Some(*deadline) });
        }
    }

    /// Extends a hold to `ttl` from now, or to `not_before` if that is later. Returns the
    /// milliseconds left.
    pub(super) fn extend(&mut self, token: &str, ttl: u64, not_before: u64) -> u64 {
        let now = self.now;
        let mut left = 0;
        if let Some(hold) = self.hold_mut(token) {
            (hold.renewed, hold.ttl) = (Some(now), ttl);
            hold.deadline = hold.keep_until.max(now + ttl).max(not_before);
            left = hold.deadline - now;
        }
        self.set_guard_to_latest();
        left
    }

    /// If an exclusive hold that others were beside is gone, makes their mode that of the lock.
    pub(super) fn settle_mode(&mut self) {
        let few = self.lock.holds.len() <= MAX_LISTED;
        let exclusive = self.live_holds().any(|hold| hold.mode == Mode::Exclusive);
        if few && self.lock.mode == Some(Mode::Exclusive) && !exclusive {
            let last = self.live_holds().max_by(|one, other| one.by_deadline(other));
            self.lock.mode = last.map(|hold| hold.mode).or(self.lock.mode);
        }
    }

    pub(super) fn drop_hold(&mut self, token: &str) {
        let foreign = self.foreign();
        self.lock.holds.retain(|hold| hold.token != token);
        if self.lock.holds.is_empty() {
            self.live = false;
            (self.lock.written, self.lock.mode) = (None, None);
            self.lock.guard.take_if(|_| !foreign);
        } else if !foreign {
            self.settle_mode();
            self.set_guard_to_latest();
        }
    }
}
