//! Blocking calls of a store: turns what ended a wait into the result of the store.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::Interrupt;
use super::denial;
use crate::rules::{Delivery, Failure, Instant, SystemCall};
use crate::system::channel::Receiver;
use crate::system::poll::{self, Want, Woken};

/// Waits until one of the descriptors is ready. Returns false if `until` came first. An error means
/// that the interrupt came first, or that the system cannot wait. `delivery` is that of a request
/// under way.
pub(super) fn ready<'a>(
    wanted: impl IntoIterator<Item = (BorrowedFd<'a>, Want)>,
    delivery: Delivery,
    interrupt: Interrupt<'a>,
    until: Instant,
) -> Result<bool, Failure> {
    match poll::wait(wanted, interrupt, until) {
        Ok(Woken::Ready) => Ok(true),
        Ok(Woken::TimedOut) => Ok(false),
        Ok(Woken::Interrupted) => Err(Failure::interrupted(delivery)),
        Err(error) => {
            let failure = denial::failure(SystemCall::Resource, &error);
            let failure = failure.reworded(|why| format!("cannot wait: {why}"));
            Err(Failure { delivery, ..failure })
        }
    }
}

/// Waits for `time`; errors are those of `ready`. No request is under way meanwhile.
pub(super) fn pause(time: Duration, interrupt: Interrupt<'_>) -> Result<(), Failure> {
    ready(None, Delivery::NotExecuted, interrupt, Instant::now() + time).map(|_| ())
}

/// Waits for the answer to a request that has been sent, as `ready` does.
pub(super) fn answered(
    answer: &impl AsFd,
    interrupt: Interrupt<'_>,
    until: Instant,
) -> Result<bool, Failure> {
    ready(Some((answer.as_fd(), Want::Read)), Delivery::Pending, interrupt, until)
}

/// The next value; `None` if there is none until `until`. Errors are those of `ready`.
pub(super) fn received<T>(
    values: &Receiver<T>,
    interrupt: Interrupt<'_>,
    until: Instant,
) -> Result<Option<T>, Failure> {
    loop {
        if let Some(value) = values.next() {
            return Ok(Some(value));
        }
        if !answered(values, interrupt, until)? {
            return Ok(None);
        }
    }
}
