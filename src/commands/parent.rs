//! `--die-with-parent`: the end of the process that started rlock counts as SIGTERM.

use std::os::fd::AsFd;

use nix::sys::signal::{Signal, raise};
use rustix::process::{PidfdFlags, getppid, kill_process, pidfd_open};

use crate::error::Error;
use crate::system::call::failed;
use crate::system::poll::{Want, ready};
use crate::system::thread;

/// From now on, rlock receives SIGTERM when its parent ends, or at once if it has ended already.
pub(super) fn die_with() -> Result<(), Error> {
    let cannot = |error| Error::system("cannot watch the parent process", error);
    let outside =
        "--die-with-parent: the parent process is in another PID namespace; omit the option";
    let parent = getppid().ok_or_else(|| Error::Config(outside.into()))?;
    let process = pidfd_open(parent, PidfdFlags::empty());
    // If the parent has ended, another process has adopted rlock, and the ID may be reused.
    if getppid() != Some(parent) {
        let _ = raise(Signal::SIGTERM);
        return Ok(());
    }
    let process = process.map_err(|error| cannot(failed("pidfd_open", error)))?;
    let this = rustix::process::getpid();
    thread::start("parent", move || {
        if ready([(process.as_fd(), Want::Read)], None).is_ok() {
            let _ = kill_process(this, rustix::process::Signal::TERM);
        }
    })
    .map_err(cannot)?;
    Ok(())
}
