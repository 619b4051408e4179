//! A timer that continues this process if it is stopped when the time comes.
//!
//! A stopped process runs no code, and cannot prevent SIGSTOP. But SIGCONT continues it, even while
//! that signal is blocked, and the kernel sends the signal of a timer without any code of the
//! process.

use std::ptr::null;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{
    CLOCK_BOOTTIME, SYS_timer_create, SYS_timer_settime, TIMER_ABSTIME, c_int, c_void, syscall,
};
use nix::sys::signal::{SigEvent, SigevNotify, Signal};

use crate::rules::Instant;

/// When the signal is sent, counted from the moment. The first has no effect if the process is
/// stopped just after it, before a busy machine has let it run. The kernel repeats no signal of a
/// timer that SIGSTOP drops, so each has a timer of its own.
const SENT_AFTER: [Duration; 2] = [Duration::ZERO, Duration::from_millis(100)];

/// Sends SIGCONT to this process, and to no other, at a moment and once more soon after it.
pub(crate) struct ContinueTimer {
    timers: [Result<Timer, Errno>; SENT_AFTER.len()],
    moment: Option<Instant>,
}

impl ContinueTimer {
    /// If the system refuses such timers, this one does nothing: it matters only to a process that
    /// is stopped.
    pub(crate) fn new() -> Self {
        Self { timers: SENT_AFTER.map(|_| Timer::new()), moment: None }
    }

    /// Why it cannot continue this process, if so.
    pub(crate) fn failure(&self) -> Option<Errno> {
        self.timers.iter().find_map(|timer| timer.as_ref().err().copied())
    }

    /// Sets the moment and replaces the previous one; `None` means never.
    pub(crate) fn set(&mut self, moment: Option<Instant>) {
        if moment != self.moment {
            self.moment = moment;
            self.set_again();
        }
    }

    /// Sets the same moment again. If it has passed, this sends the signal at once, which cancels a
    /// stop that is pending: raising that stop has dropped a signal that the timer had sent before.
    pub(crate) fn set_again(&mut self) {
        for (timer, after) in self.timers.iter().zip(SENT_AFTER) {
            if let Ok(timer) = timer {
                timer.set(self.moment.map(|moment| moment + after));
            }
        }
    }
}

/// A POSIX timer of the kernel, which lasts as long as the process. A preloaded library may replace
/// timer_settime(2) of libc, which knows a timer under another ID.
struct Timer(c_int);

impl Timer {
    fn new() -> Result<Self, Errno> {
        let signal = SigevNotify::SigevSignal { signal: Signal::SIGCONT, si_value: 0 };
        let (event, mut id) = (SigEvent::new(signal).sigevent(), 0);
        let (event, new) = (&raw const event, &raw mut id);
        // SAFETY: both pointers are valid, and the kernel writes an int.
        let created = unsafe { syscall(SYS_timer_create, CLOCK_BOOTTIME, event, new) };
        Errno::result(created).map(|_| Self(id))
    }

    fn set(&self, moment: Option<Instant>) {
        let (at, before) = (Instant::expiration(moment), null::<c_void>());
        // SAFETY: the first pointer is valid, and the second may be null.
        unsafe { syscall(SYS_timer_settime, self.0, TIMER_ABSTIME, &raw const at, before) };
    }
}

#[cfg(test)]
mod tests {
    use nix::libc;
    use nix::sys::signal::{SigSet, SigmaskHow, kill, raise};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    /// Runs in a new process, and expects that it ends although nobody else continues it.
    fn ends(run: impl FnOnce() -> bool) {
        // SAFETY: `run` makes only system calls.
        let ForkResult::Parent { child } = (unsafe { fork() }).unwrap() else {
            let status = if run() { 7 } else { 8 };
            // SAFETY: it only ends the process.
            unsafe { libc::_exit(status) }
        };
        let until = Instant::now() + Duration::from_secs(20);
        let ended = loop {
            match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
                WaitStatus::StillAlive if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                WaitStatus::StillAlive => kill(child, Signal::SIGKILL).unwrap(),
                ended => break ended,
            }
        };
        assert_eq!(ended, WaitStatus::Exited(child, 7));
    }

    #[test]
    fn a_process_that_is_stopped_just_after_the_moment_is_continued_too() {
        ends(|| {
            let mut timer = ContinueTimer::new();
            timer.set(Some(Instant::now()));
            raise(Signal::SIGSTOP).is_ok()
        });
    }

    #[test]
    fn a_moment_that_passes_just_before_a_stop_prevents_it() {
        ends(|| {
            let stop = SigSet::from(Signal::SIGTSTP);
            let blocked = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
            let mut timer = ContinueTimer::new();
            timer.set(Some(Instant::at_millis(0)));
            let raised = raise(Signal::SIGTSTP);
            timer.set_again();
            raised.is_ok() && blocked.is_ok_and(|before| before.thread_set_mask().is_ok())
        });
    }
}
