//! Shows the lock with all its holders and waiters, and how its last holds ended.

use crate::rules::View;
use crate::rules::model::transaction::Transaction;

impl Transaction<'_> {
    pub(crate) fn inspect(&self) -> View {
        let (waiters, history) = (self.waiters(), self.history());
        View { waiters, unlisted_waiters: 0, history, ..self.view(0, usize::MAX) }
    }
}
