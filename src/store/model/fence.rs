//! Fencing tokens: strictly increasing, and never behind the clock.

use super::lock::DAY;
use super::transaction::Transaction;

impl Transaction<'_> {
    /// Whether a fence is more than a day ahead of the clock. A server with a wrong clock wrote it, or
    /// somebody made it up.
    pub(super) fn is_ahead(&self, fence: u64) -> bool {
        fence > self.micros().saturating_add(DAY * 1_000)
    }

    /// By how many milliseconds a fence is ahead of the clock.
    pub(super) fn millis_ahead(&self, fence: u64) -> u64 {
        fence.saturating_sub(self.micros()) / 1_000
    }

    /// The fence of a new grant: the wanted one if it is larger than all before, else the next.
    pub(super) fn next_fence(&self, wanted: u64) -> u64 {
        let last = self.lock.fence;
        if wanted > last { wanted } else { self.micros().max(last + 1) }
    }
}
