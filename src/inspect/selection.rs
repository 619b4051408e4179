//! Which of the locks that were found to show, and in which order.

use std::time::Duration;

use super::Inspected;
use crate::rules::{SortOrder, State};

/// Which locks to show, and in which order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    /// Only those that need attention.
    pub(crate) attention: bool,
    /// Without `attention`, only those that have been held for longer.
    pub(crate) older_than: Option<Duration>,
    /// `None` puts those that need attention first, and those that are cooling or free last.
    pub(crate) order: Option<SortOrder>,
}

impl Selection {
    pub(crate) fn of(self, mut locks: Vec<Inspected>) -> Vec<Inspected> {
        if self.attention {
            locks.retain(Inspected::needs_attention);
        } else if let Some(limit) = self.older_than {
            locks.retain(|lock| lock.view.age().is_some_and(|age| age > limit));
        }
        locks.sort_by(|one, other| {
            let names = one.name.as_str().cmp(other.name.as_str());
            self.rank(one).cmp(&self.rank(other)).then(names)
        });
        locks
    }

    /// The smaller, the earlier it is shown.
    fn rank(&self, lock: &Inspected) -> u64 {
        match self.order {
            // Of the locks that need no attention, those that run now come first.
            None if lock.needs_attention() => 0,
            None => 1 + u64::from(matches!(lock.view.state, State::Cooling | State::Free)),
            Some(SortOrder::Name) => 0,
            // Not by age, because each lock was read at another moment. A lock of another tool has
            // no age, and so comes last.
            Some(SortOrder::Age) => lock.acquired().map_or(u64::MAX, |at| at.0),
            Some(SortOrder::Waiting) => u64::MAX - lock.view.waiter_count(),
            // Without an expiry, a lease ends last.
            Some(SortOrder::Lease) => lock.view.ttl.map_or(u64::MAX, |ttl| ttl.as_millis() as u64),
        }
    }
}
