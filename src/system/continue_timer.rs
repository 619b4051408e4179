//! A timer that continues this process if it is stopped when the time comes.
//!
//! A stopped process runs no code, and cannot prevent SIGSTOP. But SIGCONT continues it, even while
//! that signal is blocked, and the kernel sends the signal of a timer without any code of the
//! process.

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::timer::{Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use crate::system::clock::Instant;

/// Sends SIGCONT to this process, and to no other, at a moment.
pub(crate) struct ContinueTimer {
    timer: Option<Timer>,
    moment: Option<Instant>,
}

impl ContinueTimer {
    /// In a sandbox that refuses such timers, this one does nothing: it matters only to a process
    /// that is stopped.
    pub(crate) fn new() -> Self {
        let signal = SigevNotify::SigevSignal { signal: Signal::SIGCONT, si_value: 0 };
        let timer = Timer::new(ClockId::CLOCK_BOOTTIME, SigEvent::new(signal)).ok();
        Self { timer, moment: None }
    }

    /// Sets the moment and replaces the previous one; `None` means never.
    pub(crate) fn set(&mut self, moment: Option<Instant>) {
        if let Some(timer) = self.timer.as_mut().filter(|_| moment != self.moment) {
            let _ = timer.set(Instant::expiration(moment), TimerSetTimeFlags::TFD_TIMER_ABSTIME);
            self.moment = moment;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::libc;
    use nix::sys::signal::raise;
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[test]
    fn a_stopped_process_is_continued_at_the_last_moment_that_was_set() {
        // SAFETY: the new process makes only system calls.
        let ForkResult::Parent { child } = (unsafe { fork() }).unwrap() else {
            let mut timer = ContinueTimer::new();
            let moment = Instant::now() + Duration::from_millis(100);
            timer.set(Some(moment + Duration::from_secs(3600)));
            timer.set(Some(moment));
            let stopped = raise(Signal::SIGSTOP).is_ok();
            let status = if stopped && Instant::now() >= moment { 7 } else { 8 };
            // SAFETY: it only ends the process.
            unsafe { libc::_exit(status) }
        };
        let stopped = waitpid(child, Some(WaitPidFlag::WUNTRACED));
        assert_eq!(stopped, Ok(WaitStatus::Stopped(child, Signal::SIGSTOP)));
        assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 7)));
    }
}
