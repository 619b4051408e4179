//! Gives up a request: removes it from the queue, or drops a grant that it did not claim.

use crate::rules::model::transaction::Transaction;
use crate::rules::{Token, Ttl};

impl Transaction<'_> {
    /// If the lock may now be another waiter's, the first one is woken and asks for it.
    pub fn leave(&mut self, token: &Token, ttl: Ttl) {
        let token = token.as_str();
        self.reconcile();
        let is_first = self.position(token) == Some(0);
        let held = self.unexpired_hold(token).is_some();
        self.dequeue(token);
        self.add_tombstone(token, ttl.as_millis());
        if held {
            self.drop_hold(token);
        }
        if is_first || held || self.is_nominated(token) {
            self.wake_first();
        }
    }
}
