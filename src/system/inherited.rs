//! The state that a process inherits besides arguments and environment: ignored signals, blocked
//! signals, closed descriptors. rlock restores it for the command.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getppid};

use crate::system::call::Named;
use crate::system::disposition::{CHANGED, handled, is_ignored, set_ignored};

/// The state at the start of the process.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    blocked: SigSet,
    ignored: SigSet,
    /// The process that started rlock; `None` if it is in another PID namespace.
    pub(crate) parent: Option<Pid>,
}

impl Inherited {
    /// Records the state, then sets up what rlock itself needs. Call this first, while there is
    /// only one thread.
    pub(crate) fn capture() -> io::Result<Self> {
        // With less, rlock would crash.
        if getrlimit(Resource::RLIMIT_STACK).is_ok_and(|(limit, _)| limit < 64 * 1024) {
            return Err(io::Error::other("the limit on the stack is too small; raise ulimit -s"));
        }
        let parent = getppid();
        let mut ignored = SigSet::empty();
        for signal in handled() {
            if is_ignored(signal)? {
                ignored.add(signal);
            }
        }
        let blocked = SigSet::thread_get_mask()?;
        // SIGCHLD announces the command's end, and if it were ignored, the kernel would reap the
        // command. SIGPIPE and SIGXFSZ would end rlock while it holds a lock, because of a closed
        // stderr or a log that has reached its limit.
        set_ignored(Signal::SIGCHLD, false)?;
        set_ignored(Signal::SIGPIPE, true)?;
        set_ignored(Signal::SIGXFSZ, true)?;
        occupy_standard_descriptors()?;
        Ok(Self { blocked, ignored, parent })
    }

    /// Whether a signal has its usual effect on a process in this state.
    pub(super) fn lets_through(&self, signal: Signal) -> bool {
        !self.ignored.contains(signal) && !self.blocked.contains(signal)
    }

    /// Lets this program start with the state, and with no descriptors but its standard ones.
    pub(crate) fn pass_on(self, program: &mut Command) {
        // SAFETY: between fork and exec it makes system calls only, which affect only itself.
        unsafe {
            program.pre_exec(move || {
                self.restore()?;
                close_others_at_exec()
            });
        }
    }

    /// Restores the state before an exec. It makes system calls only, because nothing else is safe
    /// between fork and exec. Signals that have arrived meanwhile take effect.
    pub(crate) fn restore(&self) -> Result<(), Errno> {
        for signal in CHANGED {
            set_ignored(signal, self.ignored.contains(signal))?;
        }
        self.blocked.thread_set_mask()
    }
}

/// Opens `/dev/null` on closed standard descriptors, in the direction that fails when it is used,
/// as a closed descriptor does. Otherwise the next file or socket would get that number, and a
/// message for the user would go to the server. The command starts with them closed again.
fn occupy_standard_descriptors() -> io::Result<()> {
    for descriptor in 0..=2 {
        // SAFETY: it takes numbers only; a closed descriptor causes only an error.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
        if Errno::result(flags) == Err(Errno::EBADF) {
            // All lower descriptors are open, so this is the lowest free number, which open(2)
            // returns.
            let is_input = descriptor == 0;
            let null = OpenOptions::new().read(!is_input).write(is_input).open("/dev/null");
            let null = null.named("/dev/null")?;
            let _stays_open = null.into_raw_fd();
        }
    }
    Ok(())
}

/// Closes what the caller has open, such as a pipe or a lock, so that the program does not keep it
/// open.
fn close_others_at_exec() -> io::Result<()> {
    let (first, last, flags) = (3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: it takes numbers only.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if closed == 0 {
        return Ok(());
    }
    // Linux before 5.11.
    for descriptor in 3..1024 {
        // SAFETY: it takes numbers only; one that is not open causes only an error.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}
