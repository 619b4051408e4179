//! The clock that leases need: it cannot be set, and it keeps running while the machine is
//! suspended.

use std::io;
use std::ops::{Add, Sub};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{self, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};

use crate::system::call::Named;

/// A moment since boot, suspend included. Never a wall-clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        // It fails only if the kernel lacks this clock (Linux before 2.6.39). A zero instead would
        // make every lease look unexpired forever, so the safe answer is to end the process.
        #[expect(clippy::expect_used, reason = "every supported kernel has this clock")]
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock that counts from boot");
        Self(Duration::from(now))
    }

    /// How long from `earlier` until this moment; zero if it is not earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The time since boot in milliseconds.
    pub(crate) fn millis_since_boot(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// The time since boot in microseconds.
    pub(crate) fn micros_since_boot(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }

    /// What sets a timer of this clock to a moment; `None` means never.
    pub(super) fn expiration(moment: Option<Self>) -> Expiration {
        // A time of zero means never.
        let since_boot = moment.map_or(Duration::ZERO, |at| at.0.max(Duration::from_nanos(1)));
        Expiration::OneShot(TimeSpec::from_duration(since_boot))
    }

    /// A moment of an imaginary clock, for tests of code that takes the time as an argument.
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

/// A descriptor that becomes readable at a moment. If the machine was suspended past that moment,
/// it is readable as soon as the machine resumes, while a timeout of poll(2) does not count that
/// time.
pub(crate) struct Alarm(TimerFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(timerfd::ClockId::CLOCK_BOOTTIME, flags);
        Ok(Self(timer.named("timerfd_create")?))
    }

    /// Sets the moment and replaces the previous one; `None` means never.
    pub(crate) fn set(&self, moment: Option<Instant>) -> io::Result<()> {
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
        self.0.set(Instant::expiration(moment), flags).named("timerfd_settime")
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::poll::{Want, ready};

    #[test]
    fn an_alarm_goes_off_on_time_and_not_before() {
        let alarm = Alarm::new().unwrap();
        let moment = Instant::now() + Duration::from_millis(50);
        alarm.set(Some(moment)).unwrap();
        let [gone_off] = ready([(alarm.as_fd(), Want::Read)], None).unwrap();
        assert!(gone_off && Instant::now() >= moment);
        alarm.set(Some(Instant::now() + Duration::from_secs(3600))).unwrap();
        let [gone_off] = ready([(alarm.as_fd(), Want::Read)], Some(Instant::now())).unwrap();
        assert!(!gone_off);
        alarm.set(Some(Instant::at_millis(0))).unwrap();
        assert_eq!(ready([(alarm.as_fd(), Want::Read)], None).unwrap(), [true]);
    }
}
