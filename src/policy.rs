//! What the user decides about failure.

use std::time::Duration;

use clap::ValueEnum;

/// The fate of a command that has lost its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    Kill,
    Continue,
}

/// The fate of a command that no server can give a lock to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnUnreachable {
    Fail,
    Run,
}

/// Which process group a command runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// One of its own, so that all of it can be signalled and the terminal lent to it.
    Own,
    /// Ours: what the terminal sends reaches the command without us.
    Ours,
}

/// How to part from a command that has lost its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossPolicy {
    pub(crate) on_lost: OnLost,
    /// Between SIGTERM and SIGKILL.
    pub(crate) kill_after: Duration,
}

impl LossPolicy {
    pub(crate) const DEFAULT_KILL_AFTER: Duration = Duration::from_secs(5);
}
