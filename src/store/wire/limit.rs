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
    /// From now on.
    pub(in crate::store) fn new(timeout: Duration, interrupt: Interrupt<'a>) -> Self {
        Self { timeout, until: Instant::now() + timeout, interrupt }
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
