//! Gives up a request: removes it from the queue, or drops a grant that it did not claim.

use crate::rules::lock::view::View;
use crate::rules::model::transaction::Transaction;

impl Transaction<'_> {
    /// `ttl` is that of the request, in milliseconds.
    pub(in crate::rules::model) fn leave(&mut self, token: &str, ttl: u64) -> View {
        self.reconcile();
        self.lock.queue.remove(token);
        self.mark_over(token, ttl);
        if self.unexpired_hold(token).is_some() {
            self.drop_hold(token);
        }
        self.admit(token);
        self.brief_view()
    }
}
