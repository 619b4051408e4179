//! `--die-with-parent`: the end of the process that started rlock counts as SIGTERM.

use std::os::fd::AsFd;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use rustix::process::{Pid, PidfdFlags, getppid, kill_process, pidfd_open};

use crate::error::Error;
use crate::system::call::failed;
use crate::system::poll::{Want, ready};
use crate::system::thread;

/// From now on, rlock receives SIGTERM when the parent that it started with ends, or at once if it
/// has ended already.
pub(super) fn die_with(parent: Option<Pid>) -> Result<(), Error> {
    let cannot = |error| Error::system("cannot watch the parent process", error);
    let outside =
        "--die-with-parent: the parent process is in another PID namespace; omit the option";
    let parent = parent.ok_or_else(|| Error::Config(outside.into()))?;
    let process = pidfd_open(parent, PidfdFlags::empty());
    if terminated_as_orphan(parent) {
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

/// The same for a command that replaces rlock, and with it the thread that watches the parent. The
/// kernel also counts the end of the one thread that started rlock.
pub(super) fn leave_to_kernel(parent: Option<Pid>) -> Result<(), Error> {
    let set = set_pdeathsig(Signal::SIGTERM);
    set.map_err(|error| Error::system("cannot watch the parent process", error.into()))?;
    parent.map(terminated_as_orphan);
    Ok(())
}

/// Sends rlock SIGTERM if the parent has ended, and returns whether it has. Then another process has
/// adopted rlock, and the ID may be reused.
fn terminated_as_orphan(parent: Pid) -> bool {
    let is_orphan = getppid() != Some(parent);
    if is_orphan {
        let _ = raise(Signal::SIGTERM);
    }
    is_orphan
}
