//! What the user decides about failure, and about the order of a list.

use std::time::Duration;

/// What happens to a command that has lost its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLost {
    #[default]
    Kill,
    Continue,
}

/// What it means for a running command that the lock was released with its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnReleased {
    Lost,
    /// The script has released its own lock, so nothing is left to guard.
    Over,
}

/// How rlock ends a command that has lost its lock.
#[derive(Clone, Copy, Debug)]
pub struct LossPolicy {
    pub on_lost: OnLost,
    /// Between SIGTERM and SIGKILL. The supervisor caps it at a third of the TTL.
    pub kill_after: Duration,
    pub on_released: OnReleased,
}

impl LossPolicy {
    pub const DEFAULT: Self = Self {
        on_lost: OnLost::Kill,
        kill_after: Duration::from_secs(5),
        on_released: OnReleased::Lost,
    };
}

/// What happens to a command if no server can be reached before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnUnreachable {
    #[default]
    Fail,
    RunUnlocked,
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

/// The order of a list of locks. Those that are equal in it are in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// The longest held first.
    Age,
    Name,
    /// The one with the most waiters first.
    Waiting,
    /// The first lease to expire first.
    Lease,
}
