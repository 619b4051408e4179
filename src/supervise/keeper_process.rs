//! A release wakes the keeper of its hold, if that runs on the same host. Otherwise, if the server
//! froze, the keeper would stop a script that has already released its lock.
//!
//! A signal wakes it, so the kernel decides who may do that. It only makes the keeper ask the server.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};

use super::process::Process;
use crate::rules::{Instant, Token};
use crate::system::poll::{Want, ready};

/// How long a release waits for the keeper to end, which needs one answer from the server.
const PATIENCE: Duration = Duration::from_secs(1);

/// The name of the keeper's process, which shows no more of the token than `inspect`. The kernel
/// limits a name to 15 bytes.
pub(crate) fn name_of_keeper(token: &Token) -> String {
    format!("rlock-{}", token.id())
}

/// Makes the keeper of a released hold ask the server, and waits until it has ended. If there is no
/// such keeper on this host, or it belongs to another user, it learns of the release at its next
/// renewal.
pub(crate) fn wake(token: &Token) {
    let Some(keeper) = Process::named(&name_of_keeper(token)) else { return };
    if pidfd_send_signal(&keeper, Signal::USR1).is_ok() {
        let _ = ready([(keeper.as_fd(), Want::Read)], Some(Instant::now() + PATIENCE));
    }
}
