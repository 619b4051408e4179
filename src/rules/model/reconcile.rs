//! Reconciliation: brings the lock up to date before anything is decided.

use super::lock::{Hold, RevokedUpTo, TOO_LONG};
use super::transaction::Transaction;
use crate::rules::{Ending, Operator};

impl Transaction<'_> {
    /// An idle lock keeps its fence, its generation, the newest request that supersedes and the
    /// clients that were turned away, and nothing else.
    pub(super) fn become_idle(&mut self) {
        (self.lock.written, self.lock.mode, self.lock.notified) = (None, None, None);
        (self.lock.ticket, self.lock.revoked_up_to) = (0, RevokedUpTo::default());
        self.lock.nominated.clear();
        // A lock that was never granted is the same as one that was never requested.
        if self.lock.fence == 0 {
            self.lock.generation.clear();
        }
    }

    /// Drops holds whose leases have expired, up to the limit for one call.
    fn drop_expired(&mut self) {
        let now = self.now;
        let mut expired: Vec<Hold> =
            self.lock.holds.extract_if(.., |hold| hold.deadline < now).collect();
        expired.sort_unstable_by(Hold::by_deadline);
        let later = expired.split_off(self.batch.min(expired.len()));
        self.cleanup_pending = !later.is_empty();
        self.lock.holds.extend(later);
        let entries = self.expired_entries(&expired);
        self.record(entries);
    }

    pub(super) fn reconcile(&mut self) {
        // No hold of rlock is left.
        if self.lock.written.is_none() {
            return;
        }
        // A lease whose deadline another client has overwritten ends one TTL from now.
        let latest = self.now + TOO_LONG;
        for hold in self.lock.holds.iter_mut().filter(|hold| hold.deadline >= latest) {
            hold.deadline = self.now + hold.ttl;
        }
        // No hold is left, but none has ended: their key was deleted. This is a loss of data like
        // any other.
        if self.lock.holds.is_empty() && !self.foreign() {
            self.lock.generation.clear();
        }
        if self.deleted {
            self.revoke_up_to(self.lock.fence, Ending::Deleted, Operator::default());
            self.set_guard_to_latest();
            self.deleted = false;
        } else if self.foreign() {
            // When the other tool's key is gone, these holds exclude others again until they end.
            self.revoke_up_to(self.lock.fence, Ending::Overwritten, Operator::default());
        }
        if self.live && self.lock.holds.len() == 1 {
            return;
        }
        if !self.live && !self.foreign() && self.lock.queue.is_empty() {
            // All leases have expired, and there are no waiters.
            let expired = std::mem::take(&mut self.lock.holds);
            let entries = self.expired_entries(&expired);
            self.become_idle();
            self.record(entries);
            return;
        }
        self.drop_expired();
        if self.live {
            self.settle_mode();
        } else if self.lock.holds.is_empty() {
            (self.lock.written, self.lock.mode) = (None, None);
        }
    }
}
