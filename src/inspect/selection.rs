//! Which of the locks that were found to show, and in which order.

use std::cmp::Reverse;
use std::time::Duration;

use super::Inspected;
use crate::rules::{Order, State};

/// Which locks to show, and in which order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    /// Only those that need attention.
    pub(crate) attention: bool,
    /// Without `attention`, only those that have been held for longer.
    pub(crate) older_than: Option<Duration>,
    /// `None` puts those that need attention first, and those that are cooling or free last.
    pub(crate) order: Option<Order>,
}

impl Selection {
    pub(crate) fn of(self, mut locks: Vec<Inspected>) -> Vec<Inspected> {
        if self.attention {
            locks.retain(Inspected::needs_attention);
        } else if let Some(limit) = self.older_than {
            locks.retain(|lock| lock.view.age().is_some_and(|age| age > limit));
        }
        locks.sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
        match self.order {
            None => locks.sort_by_key(|lock| {
                // Of the others, those that run now come first.
                let is_over = matches!(lock.view.state, State::Cooling | State::Free);
                (!lock.needs_attention(), is_over)
            }),
            Some(Order::Name) => {}
            // Not by age, because each lock was read at another moment. A lock of another tool has
            // no age, and so comes last.
            Some(Order::Age) => locks.sort_by_key(|lock| Reverse(lock.acquired().map(Reverse))),
            Some(Order::Waiting) => locks.sort_by_key(|lock| Reverse(lock.view.waiters.len())),
            // Without an expiry, a lease ends last.
            Some(Order::Lease) => {
                locks.sort_by_key(|lock| lock.view.ttl.unwrap_or(Duration::MAX));
            }
        }
        locks
    }
}
