//! The loss of a lock while a command runs.

use std::fmt;
use std::time::Duration;

use crate::rules::{Reason, show};

/// Whether the lock was kept while the command ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    Kept,
    Lost,
}

/// Why a command must stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub(crate) cause: Cause,
    /// Since the last renewal that succeeded.
    pub(crate) renewed_ago: Duration,
    /// Until the lease expires.
    pub(crate) left: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Another client may hold the lock by now.
    NotHeld(Reason),
    /// The lease is about to expire and could not be renewed, for the reason of the last attempt.
    Unanswered(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, renewed_ago, left } = self;
        let renewed_ago = show(*renewed_ago);
        match cause {
            Cause::NotHeld(why) => write!(f, "the lock {why}"),
            Cause::Unanswered(reason) => {
                match left.is_zero() {
                    true => f.write_str("the lease has expired")?,
                    false => write!(f, "the lease expires in {}", show(*left))?,
                }
                write!(f, " and was not renewed for {renewed_ago}: {reason}")
            }
        }
    }
}
