//! Waiting in a store: turns what ended a wait into the store's own result.

use std::os::fd::AsFd;
use std::time::Duration;

use super::{Failure, Interrupt};
use crate::report::Fault;
use crate::system::clock::Instant;
use crate::system::poll::{self, Want, Woken};

/// Waits for `time`. An error means that the interrupt came first, or that the system cannot wait.
/// No request is under way meanwhile.
pub(super) fn pause(time: Duration, interrupt: Interrupt<'_>) -> Result<(), Failure> {
    let woken = poll::wait(None, interrupt, Instant::now() + time);
    result(woken, false).map(|_| ())
}

/// Waits for the answer to a request that has been sent. Returns false if `until` came first;
/// errors are those of `pause`.
pub(super) fn answered(
    answer: &impl AsFd,
    interrupt: Interrupt<'_>,
    until: Instant,
) -> Result<bool, Failure> {
    result(poll::wait(Some((answer.as_fd(), Want::Read)), interrupt, until), true)
}

fn result(woken: std::io::Result<Woken>, sent: bool) -> Result<bool, Failure> {
    match woken {
        Ok(Woken::Ready) => Ok(true),
        Ok(Woken::TimedOut) => Ok(false),
        Ok(Woken::Interrupted) => Err(Failure::Interrupted { sent }),
        Err(error) => Err(Failure::Unavailable(Fault::new(format!("cannot wait: {error}")))),
    }
}
