//! Gives up a request: removes it from the queue, or drops a grant that it did not claim.

use crate::rules::model::transaction::Transaction;

impl Transaction<'_> {
    /// If the lock may now be another waiter's, the first one is woken and asks for it. `ttl` is
    /// that of the request, in milliseconds.
    pub(in crate::rules::model) fn leave(&mut self, token: &str, ttl: u64) {
        self.reconcile();
        let is_first = self.lock.queue.position(token) == Some(0);
        let held = self.unexpired_hold(token).is_some();
        self.lock.queue.remove(token);
        self.add_tombstone(token, ttl);
        if held {
            self.drop_hold(token);
        }
        if is_first || held || self.is_nominated(token) {
            self.wake_first();
        }
    }
}
