//! Whether to repeat a request, and what its answers mean together.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use crate::rules::{BackOff, Failure, FailureKind, Instant, Repeatable};

/// The longest time that the attempts may delay the exit, not counting the last one.
const AT_MOST: Duration = Duration::from_secs(10);

/// The pause between two attempts.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(50), Duration::from_millis(500));

/// The attempts at one request.
#[derive(Clone, Debug, Hash)]
pub struct Attempts {
    /// When the attempts end.
    pub until: Instant,
    /// When the lease expires at the latest, if that is known; after a renewal that too few replicas
    /// have confirmed, when it expires at the earliest.
    pub deadline: Option<Instant>,
    back_off: BackOff,
    /// Whether an earlier attempt may have taken effect.
    maybe_done: bool,
}

/// What follows an attempt: the end, or another attempt after this failure, at this moment.
pub type Next<T> = ControlFlow<Result<T, Failure>, (Failure, Instant)>;

impl Attempts {
    /// The first attempt is due now.
    pub fn new(deadline: Option<Instant>, now: Instant) -> Self {
        let longest = now + AT_MOST;
        let until = deadline.map_or(longest, |deadline| deadline.min(longest));
        Self { until, deadline, back_off: BACK_OFF, maybe_done: false }
    }

    /// Handles the answer to one attempt, which began at `sent`.
    pub fn answered<T: Repeatable>(
        &mut self,
        sent: Instant,
        answer: Result<T, Failure>,
        now: Instant,
    ) -> Next<T> {
        let failure = match answer {
            Ok(answer) if self.maybe_done => return Break(Ok(answer.after_a_lost_reply())),
            Ok(answer) => return Break(Ok(answer)),
            Err(failure) => failure,
        };
        // After a lost reply, what is left is that of a renewal that nobody may have confirmed.
        if let FailureKind::Unconfirmed { left: Some(left) } = failure.kind
            && (self.deadline.is_some() || !self.maybe_done)
        {
            let deadline = self.deadline.map_or(sent + left, |deadline| deadline.min(sent + left));
            (self.deadline, self.until) = (Some(deadline), self.until.min(deadline));
        }
        self.maybe_done |= failure.maybe_executed();
        let again = now + self.back_off.pause();
        let is_in_time = failure.is_transient() && again < self.until;
        if is_in_time { Continue((failure, again)) } else { Break(Err(failure)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Delivery, Ending, Operator, Reason, Release, Renewal, UserMessage};

    #[test]
    fn attempts_remember_that_one_may_have_taken_effect_and_end_in_time() {
        let at = Instant::at_millis;
        let fail = |delivery| Err(Failure::unreachable(UserMessage::new("away"), delivery));
        let not_held = || Ok(Release::NotHeld(Reason::unknown()));
        let mut attempts = Attempts::new(Some(at(1_000)), at(0));
        let next: Next<Release> = attempts.answered(at(0), fail(Delivery::NotExecuted), at(0));
        assert!(matches!(next, Continue((_, again)) if again == at(50)), "{next:?}");
        // Nothing has taken effect yet.
        assert!(matches!(
            attempts.answered(at(0), not_held(), at(0)),
            Break(Ok(Release::NotHeld(_)))
        ));
        let next: Next<Release> = attempts.answered(at(50), fail(Delivery::Lost), at(50));
        assert!(matches!(next, Continue((_, again)) if again == at(150)), "{next:?}");
        let next: Next<Release> = attempts.answered(at(150), fail(Delivery::NotExecuted), at(150));
        assert!(matches!(next, Continue((_, again)) if again == at(350)), "{next:?}");
        assert_eq!(attempts.answered(at(350), not_held(), at(350)), Break(Ok(Release::Unknown)));
        let revoked = Reason::new(Some(Ending::Revoked), None, Operator::default());
        let revoked = || Ok(Release::NotHeld(revoked.clone()));
        assert!(matches!(
            attempts.answered(at(350), revoked(), at(350)),
            Break(Ok(Release::NotHeld(_)))
        ));
        let next: Next<Release> = attempts.answered(at(600), fail(Delivery::NotExecuted), at(600));
        assert!(matches!(next, Break(Err(_))), "{next:?}");
        let lasting = Err(Failure::misconfigured("password", "correct it"));
        let next: Next<Release> = Attempts::new(None, at(0)).answered(at(0), lasting, at(0));
        assert!(matches!(next, Break(Err(_))), "{next:?}");
    }

    #[test]
    fn a_renewal_that_no_replica_confirms_is_not_retried_beyond_the_lesser_deadline() {
        let at = Instant::at_millis;
        let unconfirmed = |left| {
            let kind = FailureKind::Unconfirmed { left: Some(Duration::from_millis(left)) };
            Err(Failure::new(kind, UserMessage::new("0 of 1")))
        };
        let lost = || Err(Failure::unreachable(UserMessage::new("away"), Delivery::Lost));
        // 700 ms are left of the old lease. Later attempts see what this one has made of it.
        let mut attempts = Attempts::new(None, at(0));
        for (sent, left, now, again) in [(0, 700, 100, 150), (150, 60_000, 200, 300)] {
            let next: Next<Renewal> = attempts.answered(at(sent), unconfirmed(left), at(now));
            assert!(matches!(next, Continue((_, it)) if it == at(again)), "{next:?}");
        }
        let next: Next<Renewal> = attempts.answered(at(300), lost(), at(310));
        assert!(matches!(next, Continue((_, again)) if again == at(510)), "{next:?}");
        let next: Next<Renewal> = attempts.answered(at(510), unconfirmed(60_000), at(520));
        assert!(matches!(next, Break(Err(_))), "{next:?}");
        assert_eq!(attempts.deadline, Some(at(700)));
        // Nobody knows the old lease after a lost reply.
        let mut attempts = Attempts::new(None, at(0));
        let _: Next<Renewal> = attempts.answered(at(0), lost(), at(0));
        let _: Next<Renewal> = attempts.answered(at(50), unconfirmed(60_000), at(60));
        assert_eq!((attempts.deadline, attempts.until), (None, at(10_000)));
    }
}
