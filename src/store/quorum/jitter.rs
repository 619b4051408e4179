//! Randomness that keeps clients from retrying in step.

/// A random number from 0 to 1, inclusive.
pub(super) fn jitter() -> f64 {
    let [one, other, ..] = *uuid::Uuid::new_v4().as_bytes();
    f64::from(u16::from_ne_bytes([one, other])) / f64::from(u16::MAX)
}
