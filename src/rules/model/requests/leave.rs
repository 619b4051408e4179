//! Withdraws a request: removes it from the queue, or drops a grant that it did not claim.

use crate::rules::model::transaction::Transaction;
use crate::rules::model::view::id_of;
use crate::rules::{Token, Ttl};

impl Transaction<'_> {
    /// If the lock may now be another waiter's, the first one is woken and asks for it.
    /// `is_skipped` if the client was turned away because the lock is busy.
    pub fn leave(&mut self, token: &Token, ttl: Ttl, is_skipped: bool) {
        let token = token.as_str();
        self.reconcile();
        let is_head = self.position(token) == Some(0);
        let held = self.unexpired_hold(token).map(|hold| hold.client.clone());
        let queued = self.dequeue(token).map(|waiter| waiter.client);
        match queued.or(held.clone()) {
            Some(client) if is_skipped => self.record_skip(token, client),
            Some(_) => {}
            // If the lock was forgotten, this keeps a waiter that saw the hold from closing it.
            None => self.add_tombstone(&id_of(token), ttl.as_millis()),
        }
        self.add_tombstone(token, ttl.as_millis());
        if held.is_some() {
            self.drop_hold(token);
        }
        if is_head || held.is_some() || self.is_nominated(token) {
            self.wake_first();
        }
    }
}
