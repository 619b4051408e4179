//! Every exit status of rlock, and how the process ends with it.

use crate::system::disposition;

/// Success; for `inspect NAME`, the lock is not free; with --attention or --servers, nothing was
/// found.
pub(crate) const OK: u8 = 0;
/// `inspect NAME`: the lock is free.
pub(crate) const FREE: u8 = 1;
/// `inspect --attention`, `--servers`: something was found.
pub(crate) const ATTENTION: u8 = 1;
/// The command line is wrong (EX_USAGE).
pub(crate) const USAGE: u8 = 64;
/// No usable server (EX_UNAVAILABLE).
pub(crate) const UNREACHABLE: u8 = 69;
/// A bug, or the system refused rlock a resource (EX_SOFTWARE).
pub(crate) const INTERNAL: u8 = 70;
/// Another holder has the lock, and the wait is over (EX_TEMPFAIL).
pub(crate) const BUSY: u8 = 75;
/// The lock was lost while the command ran: see `commands::exec`.
pub(crate) const LOST: u8 = 76;
/// The token does not hold the lock.
pub(crate) const NOT_HELD: u8 = 77;
/// The configuration of rlock or of the server is wrong (EX_CONFIG).
pub(crate) const CONFIG: u8 = 78;
/// A newer client superseded this waiter, or an operator removed it.
pub(crate) const REMOVED: u8 = 79;
/// The command is not executable; shells use the same status.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found; shells use the same status.
pub(crate) const NOT_FOUND: u8 = 127;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Status(u8),
    /// By the signal with this number, because the command ended by it or because rlock received
    /// it. If that is impossible, with status 128 plus that number. It is a number because nix has no
    /// names for real-time signals.
    Signal(i32),
}

impl Exit {
    /// Ends the process by its signal, or returns the status to exit with. For a signal, it returns
    /// only if the kernel protects the process from that signal, as it does process 1.
    pub fn leave(self) -> i32 {
        match self {
            Self::Status(_) => {}
            Self::Signal(signal) => disposition::die_by(signal),
        }
        self.shown()
    }

    /// The status as a shell shows it.
    pub(crate) fn shown(self) -> i32 {
        match self {
            Self::Status(status) => status.into(),
            Self::Signal(signal) => 128 + signal,
        }
    }
}
