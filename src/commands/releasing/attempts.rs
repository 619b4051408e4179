//! Whether to try again to release a hold, and what the answers mean together. This module is pure.

use std::time::Duration;

use crate::store::{Failure, Release};
use crate::system::back_off::BackOff;
use crate::system::clock::Instant;

/// The longest time that a release may delay the exit, not counting its last attempt.
const AT_MOST: Duration = Duration::from_secs(10);

/// The pause between two attempts.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(50), Duration::from_millis(500));

/// The attempts to release one hold.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Attempts {
    until: Instant,
    back_off: BackOff,
    /// Whether an earlier attempt may have released the hold.
    maybe_done: bool,
}

/// What follows an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Done(Release),
    Failed(Failure),
    /// Try again at this moment.
    Again(Failure, Instant),
}

impl Attempts {
    /// The first attempt is due now. `ends` is when the lease expires at the latest, if that is known.
    pub(crate) fn new(ends: Option<Instant>, now: Instant) -> Self {
        let longest = now + AT_MOST;
        let until = ends.map_or(longest, |ends| ends.min(longest));
        Self { until, back_off: BACK_OFF, maybe_done: false }
    }

    /// When the attempts end.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Handles the answer to one attempt.
    pub(crate) fn answered(&mut self, answer: Result<Release, Failure>, now: Instant) -> Next {
        let failure = match answer {
            // An earlier attempt may have released it, and its reply was lost.
            Ok(Release::NotHeld(why)) if self.maybe_done && why.is_released() => {
                return Next::Done(Release::Released);
            }
            Ok(Release::NotHeld(why)) if self.maybe_done && !why.is_known() => {
                return Next::Done(Release::Unknown);
            }
            Ok(released) => return Next::Done(released),
            Err(failure) => failure,
        };
        self.maybe_done |= failure.maybe_executed();
        let again = now + self.back_off.pause();
        match failure.is_transient() && again < self.until {
            true => Next::Again(failure, again),
            false => Next::Failed(failure),
        }
    }
}

#[cfg(test)]
impl Attempts {
    pub(crate) fn shift(&mut self, back: Duration) {
        self.until = self.until - back;
    }
}
