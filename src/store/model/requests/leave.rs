//! Gives up a request: removes it from the queue, or drops a grant that it did not claim.

use crate::lock::view::View;
use crate::seeded::{Flaw, seeded};
use crate::store::model::transaction::Transaction;

impl Transaction<'_> {
    /// `ttl` is that of the request, in milliseconds.
    pub(in crate::store::model) fn leave(&mut self, token: &str, ttl: u64) -> View {
        self.reconcile();
        self.lock.queue.remove(token);
        if !seeded(Flaw::ForgetsFarewells) {
            self.mark_over(token, ttl);
        }
        if self.unexpired_hold(token).is_some() {
            self.drop_hold(token);
        }
        self.admit(token);
        self.brief_view()
    }
}
