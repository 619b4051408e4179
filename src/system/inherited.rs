//! The state that a process inherits besides arguments and environment: ignored signals, blocked
//! signals, the limit on file sizes, closed descriptors. rlock restores it for the command.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::IntoRawFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, Signal};

use crate::system::call::Named;
use crate::system::disposition::{CHANGED, handled, is_ignored, set_ignored};

/// The state at the start of the process.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    blocked: SigSet,
    ignored: SigSet,
    /// The soft and the hard limit on file sizes, if rlock has raised the soft one.
    file_size: Option<(rlim_t, rlim_t)>,
}

impl Inherited {
    /// Records the state, then sets up what rlock itself needs. Call this first, while there is
    /// only one thread.
    pub(crate) fn capture() -> io::Result<Self> {
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
        Ok(Self { blocked, ignored, file_size: raise_file_size_limit() })
    }

    /// Whether a signal has its usual effect on a process in this state.
    pub(super) fn lets_through(&self, signal: Signal) -> bool {
        !self.ignored.contains(signal) && !self.blocked.contains(signal)
    }

    /// Restores the state before an exec. It makes system calls only, because nothing else is safe
    /// between fork and exec. Signals that have arrived meanwhile take effect.
    pub(crate) fn restore(&self) -> Result<(), Errno> {
        for signal in CHANGED {
            set_ignored(signal, self.ignored.contains(signal))?;
        }
        if let Some((soft, hard)) = self.file_size {
            setrlimit(Resource::RLIMIT_FSIZE, soft, hard)?;
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

/// Raises the soft limit on file sizes to the hard one. The limit is meant for what the command
/// writes, while rlock writes lock files. Returns both limits if the soft one was lower. A sandbox
/// may refuse the calls, so without them the limit just stays as it is.
fn raise_file_size_limit() -> Option<(rlim_t, rlim_t)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).ok()?;
    if soft == hard {
        return None;
    }
    setrlimit(Resource::RLIMIT_FSIZE, hard, hard).ok().map(|()| (soft, hard))
}
