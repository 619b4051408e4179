//! The clock that leases need: it cannot be set, and it keeps running while the machine is
//! suspended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{self, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};

use crate::rules::Instant;
use crate::system::call::Named;

impl Instant {
    /// The present moment.
    pub(crate) fn now() -> Self {
        // It fails only if the kernel lacks this clock (Linux before 2.6.39). A zero instead would
        // make every lease look unexpired forever, so the safe answer is to end the process.
        #[expect(clippy::expect_used, reason = "every supported kernel has this clock")]
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock that counts from boot");
        Self::at(Duration::from(now))
    }

    /// What sets a timer of this clock to a moment; `None` means never.
    pub(crate) fn expiration(moment: Option<Self>) -> Expiration {
        // A time of zero means never.
        let since_boot =
            moment.map_or(Duration::ZERO, |at| at.since_boot().max(Duration::from_nanos(1)));
        Expiration::OneShot(TimeSpec::from_duration(since_boot))
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
