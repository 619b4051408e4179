//! How rlock ends: every exit status it has, in one place.

/// 0: done; for `inspect NAME`, held.
pub(crate) const OK: u8 = 0;
/// `inspect NAME`: nobody holds the lock.
pub(crate) const FREE: u8 = 1;
/// The command line is wrong (EX_USAGE).
pub(crate) const USAGE: u8 = 64;
/// No server answers (EX_UNAVAILABLE).
pub(crate) const UNREACHABLE: u8 = 69;
/// A bug, or the system refused us something we need (EX_SOFTWARE).
pub(crate) const INTERNAL: u8 = 70;
/// Held by somebody else, and the wait is over (EX_TEMPFAIL).
pub(crate) const BUSY: u8 = 75;
/// The lock was lost under the running command.
pub(crate) const LOST: u8 = 76;
/// The token given does not hold the lock.
pub(crate) const NOT_HELD: u8 = 77;
/// Something about the server has to be set up differently (EX_CONFIG).
pub(crate) const CONFIG: u8 = 78;
/// The command could not be executed, as a shell says it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as a shell says it.
pub(crate) const NOT_FOUND: u8 = 127;

/// The table of the man page, and of the README, which a test compares with it.
pub const TABLE: &[(&str, &str)] = &[
    (
        "the command's",
        "exec ran the command to its end under the lock; if a signal terminated the command, rlock \
         terminates by the same signal, which a shell shows as 128+n",
    ),
    ("0", "success; for inspect NAME, the lock is held"),
    ("1", "inspect NAME: the lock is free"),
    ("64", "usage error"),
    (
        "69",
        "no usable server: unreachable, not answering, loading, out of memory, or too few servers \
         for a quorum",
    ),
    ("70", "internal error: a bug in rlock, or the system denied a resource"),
    ("75", "busy: another holder has the lock and the wait is over (-E sets another status)"),
    ("76", "the lock was lost while the command ran; overrides the command's status"),
    ("77", "renew or release: the token does not hold the lock"),
    (
        "78",
        "configuration error: no URL, bad URL, wrong password, missing permissions, TLS \
         failure, a replica instead of a master, the same server twice, a damaged lock file, a \
         fencing token ahead of the clock",
    ),
    ("126", "the command is not executable; the lock has been released"),
    ("127", "the command was not found; the lock has been released"),
    (
        "128+n",
        "signal n stopped rlock while it was waiting, and it has left the queue; it terminates by \
         that signal, which a shell shows as 128+n",
    ),
];

/// The end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Status(u8),
    /// By the signal with this number (nix has no names for the real-time ones), as the command did
    /// or as the caller wanted; 128+n where that is impossible.
    Signal(i32),
    /// By the signal with this number, and all of our job with us: it came from the terminal, while
    /// that was lent to the command, and our job would have had it otherwise.
    Job(i32),
}

impl Exit {
    /// Ends the process this way. Returns a status to exit with; for a signal only where the kernel
    /// protects us from it, as it does process 1.
    pub fn leave(self) -> i32 {
        match self {
            Self::Status(_) => {}
            Self::Signal(signal) => die_by(signal, SignalTarget::Process),
            Self::Job(signal) => die_by(signal, SignalTarget::Job),
        }
        self.shown()
    }

    /// The status as a shell shows it.
    pub(crate) fn shown(self) -> i32 {
        match self {
            Self::Status(status) => status.into(),
            Self::Signal(signal) | Self::Job(signal) => 128 + signal,
        }
    }
}

/// Who dies.
enum SignalTarget {
    Process,
    Job,
}

fn die_by(signal: i32, scope: SignalTarget) {
    // A core dump of ours would only be taken for one of the command's.
    let _ = nix::sys::prctl::set_dumpable(false);
    // SAFETY: the default action is no handler of ours, the set is initialised by sigemptyset
    // before it is used, and all pointers are to it or null.
    unsafe {
        nix::libc::signal(signal, nix::libc::SIG_DFL);
        let mut set = std::mem::MaybeUninit::uninit();
        nix::libc::sigemptyset(set.as_mut_ptr());
        nix::libc::sigaddset(set.as_mut_ptr(), signal);
        nix::libc::pthread_sigmask(nix::libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        match scope {
            SignalTarget::Process => nix::libc::raise(signal),
            SignalTarget::Job => nix::libc::kill(0, signal),
        };
    }
}
