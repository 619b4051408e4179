//! When a lease ends, as far as its holder may trust it. Pure: the clock is the caller's.

use std::time::Duration;

use crate::duration::Ttl;
use crate::system::clock::Instant;

/// A lease as its holder counts it: never longer than the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    sent: Instant,
    ttl: Ttl,
}

impl Lease {
    /// The lease won by a request that was sent at `sent`. The server starts counting later than
    /// that, when the request arrives.
    pub(crate) fn won(sent: Instant, ttl: Ttl) -> Self {
        Self { sent, ttl }
    }

    /// When the holder must no longer act: the TTL after the request, less what two clocks may
    /// drift apart meanwhile, 1 % and 2 ms (Redlock's allowance for drift and the granularity of
    /// the server's expiry).
    pub(crate) fn deadline(&self) -> Instant {
        let ttl = self.ttl.get();
        self.sent + (ttl - ttl / 100).saturating_sub(Duration::from_millis(2))
    }

    /// When to renew: twice before a renewal that fails would let the lease end.
    pub(crate) fn renew_at(&self) -> Instant {
        self.sent + self.ttl.get() / 3
    }

    /// When to stop what runs under the lease if it was not renewed by then, to leave it that much
    /// time to end by itself.
    pub(crate) fn stop_at(&self, before: Duration) -> Instant {
        self.deadline() - before
    }

    /// How long ago it was won or renewed.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.since(self.sent)
    }

    pub(crate) fn ttl(&self) -> Ttl {
        self.ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_before_the_request_and_allows_for_drift() {
        let lease = Lease::won(Instant::at_millis(1_000), Ttl::from_millis(30_000));
        assert_eq!(lease.deadline(), Instant::at_millis(1_000 + 30_000 - 300 - 2));
        assert_eq!(lease.renew_at(), Instant::at_millis(11_000));
    }
}
