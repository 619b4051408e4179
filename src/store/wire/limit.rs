//! What ends a wait for a server.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::rules::{Failure, Instant};
use crate::store::Interrupt;
use crate::store::blocking;
use crate::system::poll::Want;

/// What ends a wait for a server.
#[derive(Clone, Copy)]
pub(in crate::store) struct Limit<'a> {
    pub(in crate::store) timeout: Duration,
    pub(in crate::store) until: Instant,
    pub(in crate::store) interrupt: Interrupt<'a>,
}

impl<'a> Limit<'a> {
    /// From now on, until a request can be sent. Leaves time for a last attempt.
    pub(in crate::store) fn new(timeout: Duration, interrupt: Interrupt<'a>) -> Self {
        let now = Instant::now();
        let until = now + timeout;
        let last = interrupt.and_then(|it| it.last_attempt);
        let until = last.map_or(until, |last| last.send_until(until, now));
        Self { timeout: until.since(now), until, interrupt }
    }

    /// From now on, for the replies to a request.
    pub(in crate::store) fn of_replies(timeout: Duration, interrupt: Interrupt<'a>) -> Self {
        let until = Instant::now() + timeout;
        let last = interrupt.and_then(|it| it.last_attempt);
        let until = last.map_or(until, |last| last.await_until(until));
        Self { timeout, until, interrupt }
    }

    /// The same limit, after the server has blocked for this long.
    pub(in crate::store) fn after(self, time: Duration) -> Self {
        Self { until: self.until + time, ..self }
    }

    /// `blocking::ready` within the limit.
    pub(super) fn ready(
        self,
        wanted: impl IntoIterator<Item = (BorrowedFd<'a>, Want)>,
        sent: bool,
    ) -> Result<bool, Failure> {
        blocking::ready(wanted, sent, self.interrupt, self.until)
    }
}
