//! When to renew a lease, and what the supervisor learns from each answer. These are pure
//! decisions, which the renewer carries out.

use std::time::Duration;

use super::supervisor::Event;
use crate::rules::{BackOff, Failure, FailureKind, Instant, Lease, Renewal, Ttl};

/// The pauses between two attempts while the server does not answer.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(20), super::back_off::LONGEST_PAUSE);

/// How long before `terminate_at` the last attempt begins at least.
const LAST_CHANCE: Duration = Duration::from_millis(50);

/// The renewals of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// As last renewed.
    pub lease: Lease,
    /// How long before the deadline the command is asked to end.
    kill_after: Duration,
    /// When to renew next; `None` if the hold no longer exists.
    pub next: Option<Instant>,
    back_off: BackOff,
    /// How long the last successful attempt took.
    pub took: Duration,
    /// How long the last successful attempt that had to connect took; at first, that of the
    /// acquisition.
    pub connected_in: Duration,
}

impl Schedule {
    pub fn new(lease: Lease, kill_after: Duration, connected_in: Duration) -> Self {
        let next = Some(lease.renew_at());
        Self { lease, kill_after, next, back_off: BACK_OFF, took: connected_in, connected_in }
    }

    /// The length of the lease to request.
    pub(crate) fn ttl(&self) -> Ttl {
        self.lease.ttl()
    }

    /// The last renewal before the command is asked to end. It has twice the time that one needs.
    pub fn last_renewal(&self) -> LastRenewal {
        let terminate_at = self.lease.terminate_at(self.kill_after);
        let at = terminate_at - (2 * self.took.max(self.connected_in)).max(LAST_CHANCE);
        LastRenewal { at, awaited_from: at - self.back_off.next, terminate_at }
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
                let lease = Lease::new(sent, self.ttl());
                let took = now.since(sent);
                // After a failure, it had to connect.
                let is_connected = self.back_off == BACK_OFF;
                let connected_in = if is_connected { self.connected_in } else { took };
                *self = Self { took, ..Self::new(lease, self.kill_after, connected_in) };
                Some(Event::Renewed(lease, now))
            }
            Ok(Renewal::NotHeld(why)) => {
                self.next = None;
                Some(Event::NotHeld(why))
            }
            Err(failure) if failure.kind == FailureKind::Interrupted => None,
            Err(failure) => {
                let (last, again) = (self.last_renewal(), now + self.back_off.next);
                let is_last_due = sent < last.at && last.at < again && now < last.terminate_at;
                if !is_last_due {
                    self.back_off.pause();
                }
                self.next = Some(if is_last_due { last.at.max(now) } else { again });
                Some(Event::NotRenewed(failure.problem().to_owned()))
            }
        }
    }
}

/// The last renewal before the command is asked to end, for which the earlier ones leave time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRenewal {
    /// When it begins, if the one before has failed.
    pub at: Instant,
    /// A reply that is missing from then on is awaited until `terminate_at` instead: after a pause,
    /// there would be time for no attempt but the last, the server may be about to answer, and
    /// another request would only follow that one.
    awaited_from: Instant,
    terminate_at: Instant,
}

impl LastRenewal {
    /// Until when to try to send a request, rather than until this moment.
    pub(crate) fn send_until(self, until: Instant, now: Instant) -> Instant {
        if now < self.at { until.min(self.at) } else { until }
    }

    /// Until when to await the reply to one that was sent, rather than until this moment.
    pub(crate) fn await_until(self, until: Instant) -> Instant {
        if until > self.awaited_from { until.max(self.terminate_at) } else { until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Fence;

    #[test]
    fn a_renewal_is_retried_soon_until_the_server_answers() {
        let lease = Lease::new(Instant::at_millis(0), Ttl::from_millis(30_000));
        let mut schedule = Schedule::new(lease, Duration::from_secs(5), Duration::ZERO);
        assert_eq!(schedule.next, Some(Instant::at_millis(10_000)));
        for (now, next) in [(10_000, 10_020), (10_020, 10_060), (10_060, 10_140)] {
            let (sent, now) = (Instant::at_millis(now), Instant::at_millis(now));
            let busy = Err(Failure::unavailable("busy", ""));
            let event = schedule.answered(sent, busy, now);
            assert_eq!(event, Some(Event::NotRenewed("busy".into())));
            assert_eq!(schedule.next, Some(Instant::at_millis(next)));
        }
        let sent = Instant::at_millis(10_140);
        let (fence, slot, left) = (Fence(1), None, Duration::from_secs(30));
        let renewed = Renewal::Renewed { fence, slot, left, before: left };
        let event = schedule.answered(sent, Ok(renewed), Instant::at_millis(10_200));
        let lease = Lease::new(sent, Ttl::from_millis(30_000));
        assert_eq!(event, Some(Event::Renewed(lease, Instant::at_millis(10_200))));
        let (kill_after, took) = (Duration::from_secs(5), Duration::from_millis(60));
        assert_eq!(schedule, Schedule::new(lease, kill_after, took));
    }

    /// A lease of 6 s, acquired at 0, whose command is asked to end at 3,938 ms.
    fn short(connected_in: u64) -> Schedule {
        let lease = Lease::new(Instant::at_millis(0), Ttl::from_millis(6_000));
        Schedule::new(lease, Duration::from_secs(2), Duration::from_millis(connected_in))
    }

    fn refused() -> Result<Renewal, Failure> {
        Err(Failure::unavailable("refused", ""))
    }

    #[test]
    fn one_attempt_more_begins_just_before_the_command_is_asked_to_end() {
        let at = Instant::at_millis;
        let ends = |mut schedule: Schedule, until: u64| {
            let mut begun = Vec::new();
            while let Some(sent) = schedule.next.filter(|next| *next < at(until)) {
                begun.push(sent.since(at(0)).as_millis());
                schedule.answered(sent, refused(), sent);
            }
            begun
        };
        let first = [2_000, 2_020, 2_060, 2_140, 2_300, 2_620, 3_260];
        assert_eq!(ends(short(0), 6_000), [&first[..], &[3_888, 4_888, 5_888]].concat());
        // Twice the time that an attempt takes, if that is longer.
        assert_eq!(ends(short(100), 4_000), [&first[..], &[3_738]].concat());
        // So early that others follow before the end.
        assert_eq!(
            ends(short(900), 4_000),
            [&first[..2], &[2_060, 2_138, 2_218, 2_378, 2_698, 3_338]].concat()
        );
    }

    #[test]
    fn the_last_attempt_has_the_time_of_the_last_connection() {
        let at = Instant::at_millis;
        let (fence, slot, left) = (Fence(1), None, Duration::from_secs(6));
        let renewed = || Ok(Renewal::Renewed { fence, slot, left, before: left });
        let before = |schedule: &Schedule| {
            let last = schedule.last_renewal();
            last.terminate_at.since(last.at).as_millis()
        };
        let mut schedule = short(100);
        schedule.answered(at(2_000), renewed(), at(2_030));
        assert_eq!(before(&schedule), 200);
        schedule.answered(at(4_000), renewed(), at(4_150));
        assert_eq!(before(&schedule), 300);
        schedule.answered(at(6_000), refused(), at(6_000));
        schedule.answered(at(6_020), renewed(), at(6_060));
        assert_eq!(before(&schedule), 80);
        schedule.answered(at(8_000), renewed(), at(8_001));
        assert_eq!(before(&schedule), 80);
    }

    #[test]
    fn attempts_leave_time_for_the_last_one_unless_a_server_is_silent() {
        let at = Instant::at_millis;
        let mut schedule = short(0);
        let last = schedule.last_renewal();
        // A connection under way is given up in time for it.
        assert_eq!(last.send_until(at(3_500), at(3_000)), at(3_500));
        assert_eq!(last.send_until(at(4_500), at(3_000)), at(3_888));
        assert_eq!(last.send_until(at(4_500), at(3_888)), at(4_500));
        schedule.answered(at(3_000), refused(), at(3_889));
        assert_eq!(schedule.next, Some(at(3_889)));
        // No reply is given up just before that: the pause would leave one attempt, that one.
        assert_eq!(last.await_until(at(3_868)), at(3_868));
        assert_eq!(last.await_until(at(3_869)), at(3_938));
        assert_eq!(last.await_until(at(4_500)), at(4_500));
        // After that, nothing is in a hurry.
        let mut schedule = short(0);
        schedule.answered(at(3_500), refused(), at(3_938));
        assert_eq!(schedule.next, Some(at(3_958)));
    }
}
