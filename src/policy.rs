//! What the user decides about waiting and about failure.

use std::time::Duration;

use clap::ValueEnum;

/// How long to wait for a busy lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    None,
    For(Duration),
    Forever,
}

/// What happens to a command that has lost its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum OnLost {
    #[default]
    Kill,
    Continue,
}

/// How rlock ends a command that has lost its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossPolicy {
    pub(crate) on_lost: OnLost,
    /// Between SIGTERM and SIGKILL. The supervisor caps it at a third of the TTL.
    pub(crate) kill_after: Duration,
}

impl LossPolicy {
    pub(crate) const DEFAULT: Self =
        Self { on_lost: OnLost::Kill, kill_after: Duration::from_secs(5) };
}

/// What happens to a command if no server can be reached before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnUnreachable {
    #[default]
    Fail,
    Run,
}

/// The process group of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// A new one, so that rlock can signal all of it. At a terminal, the group of rlock, because a
    /// terminal knows only one group of each job.
    NewUnlessAtTerminal,
    /// The group of rlock.
    Inherited,
}
