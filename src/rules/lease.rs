//! How long a holder may rely on its lease. These are pure functions: the caller reads the clock.

use std::time::Duration;

use crate::rules::{Instant, Ttl};

/// How long a granted lock waits for the waiter to claim it, and a nominated waiter stays nominated,
/// in milliseconds.
pub const CLAIM_WINDOW: u64 = 2_000;

/// A lease as its holder counts it: it never lasts longer than by the server's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub sent: Instant,
    ttl: Ttl,
}

impl Lease {
    /// The lease that a request sent at `sent` acquired or renewed. The server counts from when the
    /// request arrives, which is later.
    pub fn new(sent: Instant, ttl: Ttl) -> Self {
        Self { sent, ttl }
    }

    /// When the holder must have stopped: the TTL after the request was sent, less 1% and 2 ms.
    ///
    /// This is the validity time of Redlock: TTL − elapsed − drift, where the elapsed time counts
    /// from before the request. See
    /// <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#safety-arguments>.
    /// The page does not specify the allowance for clock drift. The value is that of its
    /// reference implementation, redlock-rb: 1% for clocks of different speed, and 2 ms for the
    /// millisecond resolution of the server's expiry.
    ///
    /// Two deviations make it safer. It applies to a single server too. And the clock keeps running
    /// while the host is suspended, so that on a laptop that wakes up the lease has expired.
    pub fn deadline(&self) -> Instant {
        let ttl = self.ttl.get();
        self.sent + (ttl - ttl / 100).saturating_sub(Duration::from_millis(2))
    }

    /// When to renew: early enough that two renewals can fail before the lease expires.
    pub fn renew_at(&self) -> Instant {
        self.sent + renewal_interval(self.ttl.get())
    }

    /// When a renewal is late enough to report.
    pub(crate) fn late_at(&self) -> Instant {
        self.sent + late_after(self.ttl.get())
    }

    /// When the holder is asked to end: with this much time left until it must have stopped.
    pub(crate) fn terminate_at(&self, kill_after: Duration) -> Instant {
        self.deadline() - kill_after
    }

    /// How long ago the lease was acquired or renewed.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.since(self.sent)
    }

    /// The length of the lease, as requested.
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }
}

/// A lease is renewed when one of this many parts of it has passed.
const PARTS: u32 = 3;

/// How long after its acquisition or renewal a lease of this length is renewed.
pub(crate) fn renewal_interval(ttl: Duration) -> Duration {
    ttl / PARTS
}

/// The length of a lease of which this much is left when it is renewed.
pub(crate) fn renewed_with(left: Duration) -> Duration {
    left * PARTS / (PARTS - 1)
}

/// How long after it a missing renewal is worth a warning: half an interval late.
pub(crate) fn late_after(ttl: Duration) -> Duration {
    renewal_interval(ttl) + renewal_interval(ttl) / 2
}

/// How long after its last renewal a revoked hold has ended: its rlock learns of it when it renews,
/// and kills the command at most as long after that.
pub(crate) fn stopped_after(ttl: Duration) -> Duration {
    2 * renewal_interval(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_before_the_request_and_allows_for_drift() {
        let lease = Lease::new(Instant::at_millis(1_000), Ttl::from_millis(30_000));
        assert_eq!(lease.deadline(), Instant::at_millis(1_000 + 30_000 - 300 - 2));
        assert_eq!(lease.renew_at(), Instant::at_millis(11_000));
        let left = lease.ttl().get() - renewal_interval(lease.ttl().get());
        assert_eq!(renewed_with(left), lease.ttl().get());
    }
}
