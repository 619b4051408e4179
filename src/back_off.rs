//! Growing pauses between attempts to reach a server that does not answer.

use std::time::Duration;

/// Doubles from the first pause to the longest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackOff {
    next: Duration,
    longest: Duration,
}

impl BackOff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// How long to pause now.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}
