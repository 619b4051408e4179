//! A moment, as the rules compute with it. `system::clock` tells the present one.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment since boot, suspend included. Never a wall-clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// The moment at this time since boot.
    pub const fn at(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    pub(crate) const fn since_boot(self) -> Duration {
        self.0
    }

    /// How long from `earlier` until this moment; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Instant {
        /// A moment of an imaginary clock, for tests of code that takes the time as an argument.
        pub const fn at_millis(millis: u64) -> Self {
            Self(Duration::from_millis(millis))
        }
    }
}
