//! Times and leases of a test.

use std::time::Duration;

use rlock::rules::{Instant, Ttl};

/// A moment of an imaginary clock.
pub(crate) fn at_millis(millis: u64) -> Instant {
    Instant::at(Duration::from_millis(millis))
}

/// A lease of at least 100 ms.
pub(crate) fn ttl(millis: u64) -> Ttl {
    format!("{millis}ms").parse().unwrap()
}
