//! The times of a campaign.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

pub type Span = (f64, f64);

pub fn now() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    // In whole microseconds, for a person.
    (now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000) as f64 / 1e6
}

/// Microseconds since 1970. Fencing tokens count in them.
pub fn time_of_day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}
