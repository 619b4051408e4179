//! Fencing tokens: strictly increasing, and never behind the clock.

use super::lock::DAY;
use super::transaction::Transaction;

impl Transaction<'_> {
    /// Whether a fence is more than a day ahead of the clock: it comes from a wrong clock, or is a
    /// forgery.
    pub(super) fn is_ahead(&self, fence: u64) -> bool {
        fence > self.micros().saturating_add(DAY * 1_000)
    }

    /// The fence of a new grant: the wanted one, if it is larger than all earlier ones, else the
    /// next one.
    pub(super) fn next_fence(&self, wanted: Option<u64>) -> u64 {
        let last = self.lock.fence;
        wanted.filter(|&wanted| wanted > last).unwrap_or_else(|| self.micros().max(last + 1))
    }
}
