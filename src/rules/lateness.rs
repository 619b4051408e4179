//! How late rlock itself runs: what no server can be blamed for.

use std::fmt;
use std::time::Duration;

use super::{Instant, show};

/// How late rlock runs, compared with when it asked to be woken: it is suspended, or the host has no
/// time for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lateness {
    /// When the present delay began, in which rlock may be late several times.
    begun: Instant,
    /// When rlock asked to be woken, unless it is awake.
    due: Option<Instant>,
    /// How late it was before.
    late: Duration,
}

impl Lateness {
    /// In a delay that begins at this moment. rlock is awake.
    pub fn since(begun: Instant) -> Self {
        Self { begun, due: None, late: Duration::ZERO }
    }

    /// rlock sleeps, and asks to be woken at this moment.
    pub fn asleep_until(self, due: Instant) -> Self {
        Self { due: Some(due), ..self }
    }

    /// rlock is awake.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.late += self.due.take().map_or(Duration::ZERO, |due| now.since(due));
    }

    /// That rlock itself did not run, if that is a cause of the delay until now: at least a third of
    /// it. For the rest, it may have asked to sleep.
    pub(crate) fn explains(mut self, now: Instant) -> Option<NotRunning> {
        self.wake(now);
        let is_cause = !self.late.is_zero() && 3 * self.late >= now.since(self.begun);
        is_cause.then_some(NotRunning(self.late))
    }
}

/// For how long rlock itself did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotRunning(Duration);

impl fmt::Display for NotRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = show(self.0);
        write!(
            f,
            "rlock was not running for at least {time} (suspended, or the host was overloaded)"
        )
    }
}
