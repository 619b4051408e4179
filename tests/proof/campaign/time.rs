//! The times of a campaign.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

pub fn now() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9
}

/// Microseconds since 1970. Fencing tokens count in them.
pub fn time_of_day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

pub type Span = (f64, f64);
