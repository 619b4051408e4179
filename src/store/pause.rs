//! A pause that an interrupt ends.

use std::time::Duration;

use super::{Failure, Interrupt};
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};

/// Waits for so long, unless interrupted. Nothing is under way meanwhile.
pub(super) fn pause(time: Duration, interrupt: Interrupt<'_>) -> Result<(), Failure> {
    let until = Some(Instant::now() + time);
    let interrupted = match interrupt {
        Some(interrupt) => ready([(interrupt, Want::Read)], until).map(|[interrupted]| interrupted),
        None => ready([], until).map(|[]| false),
    };
    match interrupted {
        Ok(false) => Ok(()),
        Ok(true) => Err(Failure::Interrupted { sent: false }),
        Err(error) => Err(Failure::Unavailable(format!("cannot wait: {error}"))),
    }
}
