//! Which of the locks that were found to show.

use super::Inspected;

/// Which locks to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    /// Only those that need attention.
    pub(crate) attention: bool,
}

impl Selection {
    pub(crate) fn of(self, mut locks: Vec<Inspected>) -> Vec<Inspected> {
        locks.retain(|lock| !self.attention || lock.needs_attention());
        locks
    }
}
