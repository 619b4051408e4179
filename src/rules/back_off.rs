//! Growing pauses between attempts to reach a server that does not answer.

use std::time::Duration;

/// The longest pause between two renewals that fail.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pauses double, from the first to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackOff {
    /// The pause that is due.
    pub next: Duration,
    longest: Duration,
}

impl BackOff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// How long to pause now. The next pause is longer.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}
