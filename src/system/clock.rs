//! The clock that leases need: it cannot be set, and it keeps running while the machine is
//! suspended.
//!
//! rustix asks the kernel itself. A library that the user preloads, such as libfaketime, may replace
//! the clocks, timers and waits of libc.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::rules::Instant;
use crate::system::call::Named;

impl Instant {
    /// The present moment.
    pub(crate) fn now() -> Self {
        Self::at(time_of(ClockId::Boottime))
    }

    /// What sets a timer of this clock to a moment; `None` means never.
    pub(crate) fn expiration(moment: Option<Self>) -> Itimerspec {
        // A time of zero means never, and so does one that is too large for the kernel.
        let since_boot = moment.map(|at| at.since_boot().max(Duration::from_nanos(1)));
        let it_value = since_boot.and_then(|time| time.try_into().ok()).unwrap_or_default();
        Itimerspec { it_interval: Timespec::default(), it_value }
    }
}

/// What a clock of the kernel shows.
pub(crate) fn time_of(clock: ClockId) -> Duration {
    // No clock that is used shows a negative time.
    clock_gettime(clock).try_into().unwrap_or_default()
}

/// A descriptor that becomes readable at a moment. If the machine was suspended past that moment,
/// it is readable as soon as the machine resumes, while a timeout of poll(2) does not count that
/// time.
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags).named("timerfd_create")?))
    }

    /// Sets the moment and replaces the previous one; `None` means never.
    pub(crate) fn set(&self, moment: Option<Instant>) -> io::Result<()> {
        let (flags, at) = (TimerfdTimerFlags::ABSTIME, Instant::expiration(moment));
        timerfd_settime(&self.0, flags, &at).named("timerfd_settime").map(drop)
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
