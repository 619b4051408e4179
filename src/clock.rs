//! Time as a lease needs it: it runs on while the machine is suspended and nobody can set it.

use std::ops::{Add, Sub};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A moment since boot, suspend included. Never a wall-clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        // It fails only for a clock that the kernel does not have (Linux before 2.6.39). Zero then
        // makes every lease look unexpired for ever, so ending the process is the safe answer.
        #[expect(clippy::expect_used, reason = "every supported kernel has this clock")]
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock that runs since boot");
        Self(Duration::from(now))
    }

    /// How long from `earlier` until this moment; zero if it is not earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// A moment of a made-up clock, for tests of what takes its time as an argument.
    #[cfg(test)]
    pub(crate) const fn at_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
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
