//! Waiting in a store: turns what ended a wait into the store's own result.

use std::os::fd::AsFd;
use std::time::Duration;

use super::Interrupt;
use crate::rules::{Failure, Instant, UserMessage};
use crate::system::poll::{self, Want, Woken};

/// Waits for `time`. An error means that the interrupt came first, or that the system cannot wait.
/// No request is under way meanwhile.
pub(super) fn pause(time: Duration, interrupt: Interrupt<'_>) -> Result<(), Failure> {
    let woken = poll::wait(None, interrupt, Instant::now() + time);
    result(woken, false).map(|_| ())
}

/// How long a new head waits for its grant before it asks for the new holder's deadline.
const HEAD_PAUSE: Duration = Duration::from_millis(10);

/// How long a waiter listens for another message before it asks, after a sleep of up to `at_most`.
///
/// A release wakes the new holder and the new head at once. The head's request can wait, so that it
/// does not delay the new holder's claim. After a short command, the request is not needed.
pub(super) fn pause_of_a_head(is_head: bool, at_most: Duration) -> Option<Duration> {
    is_head.then(|| at_most.min(HEAD_PAUSE))
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
        Err(error) => Err(Failure::Unavailable(UserMessage::new(format!("cannot wait: {error}")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_head_listens_a_little_longer_before_it_asks() {
        let [long, short] = [1_000, 1].map(Duration::from_millis);
        assert_eq!(pause_of_a_head(false, long), None);
        assert_eq!(pause_of_a_head(true, long), Some(HEAD_PAUSE));
        assert_eq!(pause_of_a_head(true, short), Some(short));
    }
}
