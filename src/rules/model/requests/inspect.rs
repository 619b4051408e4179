//! Shows the lock with all its holders and waiters, and how its last holds ended.

use crate::rules::View;
use crate::rules::model::transaction::Transaction;
use crate::rules::model::view::shown_waiter;

impl Transaction<'_> {
    pub(crate) fn inspect(&self) -> View {
        let alive = self.lock.queue.iter().filter(|waiter| waiter.is_alive(self.now));
        let (waiters, history) = (alive.map(shown_waiter).collect(), self.history());
        View { waiters, unlisted_waiters: 0, history, ..self.view(0, usize::MAX) }
    }
}
