//! Why a command fails: the message, the exit status and the word in JSON.

use std::fmt;
use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::exit::{self, Exit};
use crate::report::plain;
use crate::rules::FailureKind::{Misconfigured, NotHere, TooLarge};
use crate::rules::{ClientInfo, Failure, Mode, Operator, Reason, UserMessage, View, show};

/// What to do about a token that may never have held the lock.
const CHECK_TOKEN: Option<&str> = Some("check NAME and RLOCK_TOKEN");

/// Why a command fails. Prints as one line: the problem and its remedy.
#[derive(Debug)]
pub enum Error {
    /// The command line is wrong, or a variable that is the default for an option.
    Usage(UserMessage),
    /// The configuration is wrong, as rlock can tell without a server.
    Config(UserMessage),
    /// No server can serve the request.
    Store(Failure),
    /// Another client holds the lock. `waited`: how long this one waited before it gave up.
    Busy { view: Box<View>, asked: Mode, waited: Option<Duration> },
    /// An enclosing command holds the lock, so waiting could deadlock, or another tool does, which
    /// rlock cannot ask to release it.
    Held(UserMessage),
    /// A newer request has superseded this one.
    Superseded(Box<ClientInfo>),
    /// An operator has removed this request from the queue.
    Removed(Operator),
    /// Not exactly one client has the ID that the user gave.
    Id { fault: UserMessage, view: Box<View> },
    /// The token does not hold the lock, and so cannot renew or release it.
    NotHeld(UserMessage),
    /// The hold of a request has ended before its reply arrived: revoked, released or expired.
    Ended(UserMessage),
    /// The command cannot be started. `found` says whether the program exists.
    Command { fault: UserMessage, found: bool },
    /// A keeper did not get the hold: its exit status, and its last message.
    Keeper { status: Option<i32>, told: String },
    /// A signal ended the wait.
    Stopped(Signal),
    /// The process of --while-pid ended during the wait.
    ProcessEnded,
    /// The reader of the output closed it.
    Unread,
    /// A bug, or the system refused rlock something that it needs.
    Internal(anyhow::Error),
}

impl Error {
    /// The system refused rlock something that it needs: what for, and the system's own error.
    pub(crate) fn system(what: &'static str, error: io::Error) -> Self {
        Self::Internal(anyhow::Error::new(error).context(what))
    }

    /// The token does not hold the lock. `remedy` is what to do if it held the lock before.
    pub(crate) fn not_held(why: &Reason, remedy: Option<&str>) -> Self {
        let ended = format!("this token's hold {why}");
        let (problem, remedy) = match (why.is_recorded(), why.is_known()) {
            (true, _) => (ended, remedy),
            (false, true) => (format!("{ended}, or it never held this lock"), CHECK_TOKEN),
            (false, false) => {
                let unknown = "this token does not hold the lock and is not in its history";
                (unknown.to_owned(), CHECK_TOKEN)
            }
        };
        let fault = UserMessage::new(problem);
        Self::NotHeld(if let Some(remedy) = remedy { fault.with_remedy(remedy) } else { fault })
    }

    /// How rlock ends. If the lock is busy, `-E` may replace the status.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Stopped(signal) => Exit::Signal(*signal as i32),
            Self::Unread => Exit::Signal(Signal::SIGPIPE as i32),
            _ => Exit::Status(self.kind().0),
        }
    }

    /// The word for the error in JSON, which is as stable as an exit status.
    pub(crate) fn status(&self) -> &'static str {
        self.kind().1
    }

    /// The exit status, and its word in JSON.
    fn kind(&self) -> (u8, &'static str) {
        match self {
            // As if it had ended before rlock looked for it.
            Self::Usage(_) | Self::ProcessEnded => (exit::USAGE, "usage"),
            Self::Config(_) => (exit::CONFIG, "config"),
            Self::Store(failure) => match failure.kind {
                Misconfigured | NotHere | TooLarge => (exit::CONFIG, "config"),
                _ => (exit::UNREACHABLE, "unreachable"),
            },
            Self::Busy { .. } | Self::Held(_) => (exit::BUSY, "busy"),
            Self::Superseded(_) => (exit::REMOVED, "superseded"),
            Self::Removed(_) | Self::Ended(_) => (exit::REMOVED, "removed"),
            Self::NotHeld(_) | Self::Id { .. } => (exit::NOT_HELD, "not-held"),
            Self::Command { found: false, .. } => (exit::NOT_FOUND, "command"),
            Self::Command { found: true, .. } => (exit::NOT_EXECUTABLE, "command"),
            Self::Keeper { status, .. } => {
                match status.and_then(|status| u8::try_from(status).ok()) {
                    Some(exit::USAGE) => (exit::USAGE, "usage"),
                    Some(exit::UNREACHABLE) => (exit::UNREACHABLE, "unreachable"),
                    Some(exit::CONFIG) => (exit::CONFIG, "config"),
                    // The hold was revoked or lost before the keeper's request, which does not
                    // wait.
                    Some(exit::BUSY | exit::REMOVED | exit::NOT_HELD) => (exit::LOST, "lost"),
                    _ => (exit::INTERNAL, "internal"),
                }
            }
            Self::Stopped(_) => (exit::INTERNAL, "stopped"),
            Self::Unread => (exit::INTERNAL, "unread"),
            Self::Internal(_) => (exit::INTERNAL, "internal"),
        }
    }

    /// The problem without the remedy of a failed store, for a message with another ending.
    pub(crate) fn problem(&self) -> String {
        match self {
            Self::Store(failure) => failure.problem().to_owned(),
            error => error.to_string(),
        }
    }

    /// Whether the cause may pass without any action, so that it is worth trying again.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.is_transient())
    }

    /// Whether it is about waiting or a busy lock, which `--quiet` hides.
    pub(crate) fn is_expected(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. } | Self::Superseded(_) | Self::Stopped(_) | Self::ProcessEnded
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(fault)
            | Self::Config(fault)
            | Self::Held(fault)
            | Self::Id { fault, .. }
            | Self::NotHeld(fault)
            | Self::Ended(fault)
            | Self::Command { fault, .. } => fault.fmt(f),
            Self::Store(failure) => failure.fmt(f),
            Self::Busy { view, asked, waited, .. } => {
                write!(f, "{view}{}; ", view.mismatch(*asked))?;
                match waited {
                    None => f.write_str("not waiting"),
                    Some(time) => write!(f, "gave up after {}", show(*time)),
                }
            }
            Self::Superseded(newer) => {
                write!(f, "superseded by {newer}")?;
                match newer.label() {
                    Some(label) => write!(f, ", label {label}"),
                    None => Ok(()),
                }
            }
            Self::Removed(operator) => write!(f, "removed from the queue{operator}"),
            Self::Keeper { .. } if self.kind().0 == exit::LOST => {
                f.write_str("the lock was lost while the keeper started; acquire it again")
            }
            Self::Keeper { told, .. } if told.is_empty() => {
                f.write_str("the keeper failed to start; try again")
            }
            Self::Keeper { told, .. } => write!(f, "the keeper failed to start: {told}"),
            Self::Stopped(signal) => write!(f, "stopped by {signal} while waiting"),
            Self::ProcessEnded => f.write_str("the process of --while-pid ended during the wait"),
            Self::Unread => f.write_str("the reader of the output has closed it"),
            Self::Internal(error) => {
                let causes = error.chain().map(|cause| match cause.downcast_ref() {
                    Some(error) => plain(error),
                    None => cause.to_string(),
                });
                f.write_str(&causes.collect::<Vec<_>>().join(": "))
            }
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
