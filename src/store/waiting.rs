//! Waiting in a store, and which failure an interrupt means to the caller.

use std::os::fd::AsFd;
use std::time::Duration;

use super::{Failure, Interrupt};
use crate::system::clock::Instant;
use crate::system::poll::{self, Want, Woken};

/// Waits for so long, unless interrupted. Nothing is under way meanwhile.
pub(super) fn pause(time: Duration, interrupt: Interrupt<'_>) -> Result<(), Failure> {
    let woken = poll::wait(None, interrupt, Instant::now() + time);
    told(woken, false).map(|_| ())
}

/// Waits for the answer to a request that has been sent; false if `until` came first.
pub(super) fn answered(
    answer: &impl AsFd,
    interrupt: Interrupt<'_>,
    until: Instant,
) -> Result<bool, Failure> {
    told(poll::wait(Some((answer.as_fd(), Want::Read)), interrupt, until), true)
}

fn told(woken: std::io::Result<Woken>, sent: bool) -> Result<bool, Failure> {
    match woken {
        Ok(Woken::Ready) => Ok(true),
        Ok(Woken::TimedOut) => Ok(false),
        Ok(Woken::Interrupted) => Err(Failure::Interrupted { sent }),
        Err(error) => Err(Failure::Unavailable(format!("cannot wait: {error}"))),
    }
}
