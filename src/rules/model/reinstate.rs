//! Reinstatement: restores holds that a server lost together with its data.

use super::lock::Hold;
use super::transaction::Transaction;
use crate::rules::{HoldState, Holder, Mode};

impl Transaction<'_> {
    /// Reinstates a hold that a waiter has seen: once, as revoked and exclusive, under its id.
    pub fn reinstate(&mut self, holder: &Holder, left: u64) {
        let known = self.lock.holds.iter().any(|hold| hold.token == holder.id);
        if holder.id.len() > 8
            || known
            || self.has_tombstone(&holder.id)
            || self.is_ahead(holder.fence.0)
        {
            return;
        }
        self.add_tombstone(&holder.id, left);
        (self.live, self.lock.mode) = (true, Some(Mode::Exclusive));
        self.lock.fence = self.lock.fence.max(holder.fence.0);
        self.lock.holds.push(Hold {
            token: holder.id.clone(),
            about: holder.client.to_lines(),
            fence: holder.fence.0,
            acquired: holder.acquired.0,
            renewed: Some(self.now),
            deadline: self.now + left,
            slot: holder.slot,
            status: HoldState::Revoked,
            ..Hold::default()
        });
        self.set_guard_to_latest();
    }
}
