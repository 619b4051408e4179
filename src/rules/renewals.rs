//! When to renew a lease, and what the supervisor learns from each answer. These are pure
//! decisions, which the renewer carries out.

use std::time::Duration;

use super::supervisor::Event;
use crate::rules::{BackOff, Failure, Instant, Lease, Renewal, Ttl};

/// The pauses between two attempts while the server does not answer.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The renewals of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    ttl: Ttl,
    /// When to renew next; `None` if the hold no longer exists.
    pub next: Option<Instant>,
    back_off: BackOff,
}

impl Schedule {
    pub fn new(lease: Lease) -> Self {
        Self { ttl: lease.ttl(), next: Some(lease.renew_at()), back_off: BACK_OFF }
    }

    /// The length of the lease to request.
    pub(crate) fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// Handles the answer to a renewal that was sent at `sent`. Returns the event for the
    /// supervisor; `None` if the supervisor itself canceled the request.
    pub fn answered(
        &mut self,
        sent: Instant,
        answer: Result<Renewal, Failure>,
        now: Instant,
    ) -> Option<Event> {
        match answer {
            Ok(Renewal::Renewed { .. }) => {
                let lease = Lease::new(sent, self.ttl);
                *self = Self::new(lease);
                Some(Event::Renewed(lease))
            }
            Ok(Renewal::NotHeld(why)) => {
                self.next = None;
                Some(Event::NotHeld(why))
            }
            Err(Failure::Interrupted { .. }) => None,
            Err(failure) => {
                self.next = Some(now + self.back_off.pause());
                Some(Event::Unanswered(failure.problem().to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Fence, UserMessage};

    #[test]
    fn a_renewal_is_retried_soon_until_the_server_answers() {
        let lease = Lease::new(Instant::at_millis(0), Ttl::from_millis(30_000));
        let mut schedule = Schedule::new(lease);
        assert_eq!(schedule.next, Some(Instant::at_millis(10_000)));
        for (now, next) in [(10_000, 10_020), (10_020, 10_060), (10_060, 10_140)] {
            let (sent, now) = (Instant::at_millis(now), Instant::at_millis(now));
            let busy = Err(Failure::Unavailable(UserMessage::new("busy")));
            let event = schedule.answered(sent, busy, now);
            assert_eq!(event, Some(Event::Unanswered("busy".into())));
            assert_eq!(schedule.next, Some(Instant::at_millis(next)));
        }
        let sent = Instant::at_millis(10_140);
        let (fence, slot, left) = (Fence(1), None, Duration::from_secs(30));
        let renewed = Renewal::Renewed { fence, slot, left, before: left };
        let event = schedule.answered(sent, Ok(renewed), Instant::at_millis(10_200));
        let lease = Lease::new(sent, Ttl::from_millis(30_000));
        assert_eq!(event, Some(Event::Renewed(lease)));
        assert_eq!(schedule, Schedule::new(lease));
    }
}
