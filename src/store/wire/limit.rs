//! The time limits of requests.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::rules::{Delivery, Failure, Instant};
use crate::store::Interrupt;
use crate::store::blocking;
use crate::system::poll::Want;

/// What ends a wait for a server.
#[derive(Clone, Copy)]
pub(in crate::store) struct Limit<'a> {
    /// For messages.
    pub(in crate::store) timeout: Duration,
    pub(in crate::store) until: Instant,
    pub(in crate::store) interrupt: Interrupt<'a>,
}

impl<'a> Limit<'a> {
    /// From now on, for all that an attempt needs before its request is sent. Leaves time for the last
    /// renewal.
    pub(in crate::store) fn of_attempt(timeout: Duration, interrupt: Interrupt<'a>) -> Self {
        let now = Instant::now();
        let last = interrupt.last_renewal;
        let until = last.map_or(now + timeout, |last| last.send_until(now + timeout, now));
        Self::ending(now, until, until.since(now), interrupt)
    }

    /// From now on, for the replies to a request. Before that, the server may block for so long.
    pub(in crate::store) fn of_replies(
        blocked: Duration,
        timeout: Duration,
        interrupt: Interrupt<'a>,
    ) -> Self {
        let now = Instant::now();
        let until = now + blocked + timeout;
        let last = interrupt.last_renewal;
        let until = last.map_or(until, |last| last.await_until(until));
        Self::ending(now, until, timeout, interrupt)
    }

    /// The moment of the interrupt is the end of the time, too, for a server that does not answer
    /// until then.
    fn ending(
        now: Instant,
        until: Instant,
        timeout: Duration,
        mut interrupt: Interrupt<'a>,
    ) -> Self {
        let until = interrupt.at.take().into_iter().fold(until, Instant::min);
        Self { timeout: timeout.min(until.since(now)), until, interrupt }
    }

    /// `blocking::ready` within the limit.
    pub(super) fn ready(
        self,
        wanted: impl IntoIterator<Item = (BorrowedFd<'a>, Want)>,
        delivery: Delivery,
    ) -> Result<bool, Failure> {
        blocking::ready(wanted, delivery, self.interrupt, self.until)
    }
}
