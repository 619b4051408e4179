//! The time of a search.

use std::time::Duration;

use crate::values::at_millis;
use rlock::rules::Instant;

/// The step in which time passes.
pub(super) const TICK: Duration = Duration::from_millis(TICK_MILLIS);
pub(super) const TICK_MILLIS: u64 = 1_000;

/// The time in every state: when time passes, all else moves back. In milliseconds.
pub(super) const NOW: u64 = 1_000_000_000;

pub(super) fn now() -> Instant {
    at_millis(NOW)
}
