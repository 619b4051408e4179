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
    /// From now on. The moment of the interrupt is the end of the time, too, for a server that does
    /// not answer until then.
    pub(in crate::store) fn new(timeout: Duration, interrupt: Interrupt<'a>) -> Self {
        Self::after(Duration::ZERO, timeout, interrupt)
    }

    /// The same, after the server has blocked for this long.
    pub(in crate::store) fn after(
        time: Duration,
        timeout: Duration,
        interrupt: Interrupt<'a>,
    ) -> Self {
        let (at, interrupt) = interrupt.unwrap_or_default().split();
        let (now, interrupt) = (Instant::now(), Some(interrupt));
        let until = at.into_iter().fold(now + time + timeout, Instant::min);
        Self { timeout: timeout.min(until.since(now)), until, interrupt }
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
