//! What ends a command before its work is done, and what the operator is told about it.

use std::fmt;
use std::io;
use std::time::Duration;

use anyhow::anyhow;
use nix::sys::signal::Signal;

use crate::duration::show;
use crate::exit::{self, Exit};
use crate::lock::Mode;
use crate::lock::view::{Reason, View};
use crate::report::{Verbosity, plain};
use crate::store::Failure;

/// One line each, for somebody who is tired: what happened, and what to do.
#[derive(Debug)]
pub(crate) enum Error {
    /// The command line, or a variable that stands for a part of it.
    Usage(String),
    /// The configuration, seen without asking a server.
    Config(String),
    /// No server, or not one that can be used.
    Store(Failure),
    /// The server has stopped answering somebody who was in line.
    LostWhileQueued(Failure),
    /// Somebody else has the lock.
    Busy { view: Box<View>, asked: Mode, waited: Waited, status: u8 },
    /// The lock is held by a command that this one is a part of: it would wait for itself.
    Nested { status: u8 },
    /// Exclusive inside of a shared hold of the same owner, which can never be.
    Upgrade { status: u8 },
    /// The lock is another tool's, which cannot be told to let go.
    ForeignLock,
    /// A token that does not hold the lock.
    NotHeld(Reason),
    /// A command that cannot be started.
    Command { program: String, error: io::Error },
    /// A signal while waiting.
    Stopped(Signal),
    /// Whoever read our output has closed it, having seen enough.
    Unread,
    /// What should not happen: a bug, or the system refused us something.
    Internal(anyhow::Error),
}

/// How long somebody waited who now gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waited {
    NotAtAll,
    For(Duration),
}

impl Error {
    /// The system refused us something we cannot do without.
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        Self::Internal(anyhow!("{what}: {}", plain(error)))
    }

    pub(crate) fn exit(&self) -> Exit {
        Exit::Status(match self {
            Self::Usage(_) => exit::USAGE,
            Self::Config(_)
            | Self::Store(Failure::Misconfigured { .. } | Failure::TooLarge(_))
            | Self::LostWhileQueued(Failure::Misconfigured { .. } | Failure::TooLarge(_)) => {
                exit::CONFIG
            }
            Self::Store(_) | Self::LostWhileQueued(_) => exit::UNREACHABLE,
            Self::Busy { status, .. } | Self::Nested { status } | Self::Upgrade { status } => {
                *status
            }
            Self::ForeignLock => exit::BUSY,
            Self::NotHeld(_) => exit::NOT_HELD,
            Self::Command { error, .. } => match error.kind() {
                io::ErrorKind::NotFound => exit::NOT_FOUND,
                _ => exit::NOT_EXECUTABLE,
            },
            Self::Stopped(signal) => return Exit::Signal(*signal as i32),
            Self::Unread => return Exit::Signal(Signal::SIGPIPE as i32),
            Self::Internal(_) => exit::INTERNAL,
        })
    }

    /// The word for it in JSON, as stable as an exit status.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Config(_)
            | Self::Store(Failure::Misconfigured { .. } | Failure::TooLarge(_))
            | Self::LostWhileQueued(Failure::Misconfigured { .. } | Failure::TooLarge(_)) => {
                "config"
            }
            Self::Store(_) | Self::LostWhileQueued(_) => "unreachable",
            Self::Busy { .. } | Self::Nested { .. } | Self::Upgrade { .. } | Self::ForeignLock => {
                "busy"
            }
            Self::NotHeld(_) => "not-held",
            Self::Command { .. } => "command",
            Self::Stopped(_) => "stopped",
            Self::Unread => "unread",
            Self::Internal(_) => "internal",
        }
    }

    /// Has no server answered that could give a lock or refuse it?
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.is_unreachable())
    }

    /// May it be over without anybody's doing?
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.is_transient())
    }

    /// Is it worth a line? `--quiet` keeps quiet about waiting and being busy.
    pub(crate) fn is_worth_telling(&self, verbosity: Verbosity) -> bool {
        match self {
            Self::Unread => false,
            Self::Busy { .. } | Self::Stopped(_) => verbosity > Verbosity::Quiet,
            _ => true,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) | Self::Config(what) => f.write_str(what),
            Self::Store(failure) | Self::LostWhileQueued(failure) => failure.fmt(f),
            Self::Busy { view, asked, waited, .. } => {
                write!(f, "{view}{}; ", view.mismatch(*asked))?;
                match waited {
                    Waited::NotAtAll => f.write_str("not waiting"),
                    Waited::For(time) => write!(f, "gave up after {}", show(*time)),
                }
            }
            Self::Nested { .. } => f.write_str(
                "held by a command that this one runs inside of (see RLOCK_HELD), which would wait \
                 for itself; see --reentrant",
            ),
            Self::Upgrade { .. } => f.write_str(
                "held in shared mode by a command that this one runs inside of, and asked for \
                 exclusively, which can never be; ask for it exclusively outside",
            ),
            Self::ForeignLock => f.write_str(
                "held by another tool, which cannot be told to let go; --force --now deletes its \
                 key",
            ),
            Self::NotHeld(why) if why.is_known() => {
                write!(f, "this token does not hold the lock: it {why}; acquire it again")
            }
            Self::NotHeld(_) => f.write_str(
                "this token does not hold the lock and is not on record; check NAME and RLOCK_TOKEN \
                 (the id that inspect shows is not a token)",
            ),
            Self::Command { program, error } => match error.kind() {
                io::ErrorKind::NotFound => {
                    write!(f, "{program}: command not found")
                }
                _ => write!(f, "{program}: {}", plain(error)),
            },
            Self::Stopped(signal) => write!(f, "stopped by {signal} while waiting"),
            Self::Unread => f.write_str("nobody reads the output"),
            Self::Internal(error) => write!(f, "{error:#}"),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Store(failure)
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Internal(error)
    }
}
