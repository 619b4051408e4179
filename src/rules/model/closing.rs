//! Closing: keeps everybody out while holds may go on that a server lost together with its data.
//!
//! A closed lock has one more hold, which is revoked and exclusive, and nobody's. It has the IDs of
//! the holders that have not released the lock since.

use super::lock::{Hold, Mark};
use super::transaction::Transaction;
use crate::rules::{CLOSED, HoldState, Mode, Seen, millis};

impl Transaction<'_> {
    /// Closes the lock because a waiter saw these holders, and they may still be at work: once, so
    /// that no later reminder extends it.
    pub(super) fn close(&mut self, Seen { generation, fence, left, ids }: &Seen) {
        let mark = Mark::Closed(generation.clone(), *fence);
        let at_work: Vec<&String> = ids.iter().filter(|id| !self.has_tombstone(id)).collect();
        if at_work.is_empty() || self.is_marked(&mark) || self.is_ahead(fence.0) {
            return;
        }
        self.mark(mark, millis(*left));
        let index = self.lock.holds.iter().position(|hold| hold.token == CLOSED);
        let mut before = index.map(|index| self.lock.holds.remove(index)).unwrap_or_default();
        before.closed_for.extend(at_work.into_iter().cloned());
        (self.live, self.lock.mode) = (true, Some(Mode::Exclusive));
        self.lock.fence = self.lock.fence.max(fence.0);
        self.lock.holds.push(Hold {
            token: CLOSED.to_owned(),
            closed_for: before.closed_for,
            fence: self.lock.fence,
            acquired: self.now,
            renewed: Some(self.now),
            deadline: before.deadline.max(self.now + millis(*left)),
            status: HoldState::Revoked,
            ..Hold::default()
        });
        self.set_guard_to_latest();
    }

    /// Opens the lock again once the last of the holders has released it.
    pub(super) fn reopen(&mut self, id: &str) {
        let is_closed = self.unexpired_hold(CLOSED).is_some();
        let Some(hold) = self.hold_mut(CLOSED).filter(|_| is_closed) else { return };
        hold.closed_for.retain(|other| other != id);
        if hold.closed_for.is_empty() {
            self.drop_hold(CLOSED);
        }
    }
}
