//! Whether to repeat a request, and what its answers mean together.

use std::time::Duration;

use crate::rules::{BackOff, Failure, Instant, Repeatable};

/// The longest time that the attempts may delay the exit, not counting the last one.
const AT_MOST: Duration = Duration::from_secs(10);

/// The pause between two attempts.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(50), Duration::from_millis(500));

/// The attempts at one request.
#[derive(Clone, Debug, Hash)]
pub struct Attempts {
    /// When the attempts end.
    pub until: Instant,
    back_off: BackOff,
    /// Whether an earlier attempt may have taken effect.
    maybe_done: bool,
}

/// What follows an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<T> {
    Done(T),
    Failed(Failure),
    /// Try again at this moment.
    Again(Failure, Instant),
}

impl Attempts {
    /// The first attempt is due now. `ends` is when the lease expires at the latest, if that is
    /// known.
    pub fn new(ends: Option<Instant>, now: Instant) -> Self {
        let longest = now + AT_MOST;
        let until = ends.map_or(longest, |ends| ends.min(longest));
        Self { until, back_off: BACK_OFF, maybe_done: false }
    }

    /// Handles the answer to one attempt.
    pub fn answered<T: Repeatable>(&mut self, answer: Result<T, Failure>, now: Instant) -> Next<T> {
        let failure = match answer {
            Ok(answer) if self.maybe_done => return Next::Done(answer.after_a_lost_reply()),
            Ok(answer) => return Next::Done(answer),
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
mod tests {
    use super::*;
    use crate::rules::{Delivery, Ending, Operator, Reason, Release, UserMessage};

    #[test]
    fn attempts_remember_that_one_may_have_taken_effect_and_end_in_time() {
        let at = Instant::at_millis;
        let fail = |delivery| Err(Failure::unreachable(UserMessage::new("away"), delivery));
        let not_held = || Ok(Release::NotHeld(Reason::unknown()));
        let mut attempts = Attempts::new(Some(at(1_000)), at(0));
        let next: Next<Release> = attempts.answered(fail(Delivery::NotSent), at(0));
        assert!(matches!(next, Next::Again(_, again) if again == at(50)), "{next:?}");
        // Nothing has taken effect yet.
        assert!(matches!(attempts.answered(not_held(), at(0)), Next::Done(Release::NotHeld(_))));
        let next: Next<Release> = attempts.answered(fail(Delivery::Lost), at(50));
        assert!(matches!(next, Next::Again(_, again) if again == at(150)), "{next:?}");
        let next: Next<Release> = attempts.answered(fail(Delivery::NotSent), at(150));
        assert!(matches!(next, Next::Again(_, again) if again == at(350)), "{next:?}");
        assert_eq!(attempts.answered(not_held(), at(350)), Next::Done(Release::Unknown));
        let revoked = Reason::new(Some(Ending::Revoked), None, Operator::default());
        let revoked = || Ok(Release::NotHeld(revoked.clone()));
        assert!(matches!(attempts.answered(revoked(), at(350)), Next::Done(Release::NotHeld(_))));
        let next: Next<Release> = attempts.answered(fail(Delivery::NotSent), at(600));
        assert!(matches!(next, Next::Failed(_)), "{next:?}");
        let lasting = Err(Failure::misconfigured("password", "correct it"));
        let next: Next<Release> = Attempts::new(None, at(0)).answered(lasting, at(0));
        assert!(matches!(next, Next::Failed(_)), "{next:?}");
    }
}
