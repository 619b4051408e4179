//! Closing: keeps everybody out while holds may go on that a server lost together with its data.
//!
//! A closed lock has one more hold, which is revoked and exclusive, and nobody's. Its owner is the
//! ids of the holders that have not released the lock since, each followed by a space.

use super::lock::Hold;
use super::transaction::Transaction;
use crate::rules::{CLOSED, HoldState, Mode, Seen, millis};

impl Transaction<'_> {
    /// Closes the lock because a waiter saw these holders, and they may still be at work: once, so
    /// that no later reminder extends it.
    pub fn close(&mut self, Seen { generation, fence, left, ids }: &Seen) {
        let mark = format!("{generation} {fence}");
        let at_work = ids.iter().filter(|id| !self.has_tombstone(id));
        let owner: String = at_work.map(|id| format!("{id} ")).collect();
        if owner.is_empty() || self.has_tombstone(&mark) || self.is_ahead(fence.0) {
            return;
        }
        self.add_tombstone(&mark, millis(*left));
        let index = self.lock.holds.iter().position(|hold| hold.token == CLOSED);
        let before = index.map(|index| self.lock.holds.remove(index)).unwrap_or_default();
        (self.live, self.lock.mode) = (true, Some(Mode::Exclusive));
        self.lock.fence = self.lock.fence.max(fence.0);
        self.lock.holds.push(Hold {
            token: CLOSED.to_owned(),
            owner: before.owner + &owner,
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
    pub fn reopen(&mut self, id: &str) {
        let Some(hold) = self.unexpired_hold(CLOSED) else { return };
        let others = hold.owner.split_whitespace().filter(|other| *other != id);
        let owner: String = others.map(|other| format!("{other} ")).collect();
        if owner.is_empty() {
            self.drop_hold(CLOSED);
        } else if let Some(hold) = self.hold_mut(CLOSED) {
            hold.owner = owner;
        }
    }
}
