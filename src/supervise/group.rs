//! A process group that no living process leads.
//!
//! The leader of a group may not call setsid(2), and setsid(1) forks and returns at once if it
//! leads a group. A command that led its group would therefore behave differently under rlock.

use std::fs::File;
use std::io::{self, stderr, stdin, stdout};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, setpgid, tcgetpgrp};

use super::fork::{ShortLived, fork_to_end};
use crate::error::Error;
use crate::rules::Group;
use crate::system::call::Named;
use crate::system::thread::without_signals;

/// A group whose leader has ended and is reaped on drop. Until then the kernel does not reuse its
/// ID.
pub(crate) struct OwnGroup {
    leader: ShortLived,
}

impl OwnGroup {
    /// Makes a group for a command; `None` if the command stays in rlock's group.
    ///
    /// Call this well before the command starts. Just after the end of the leader, Linux still
    /// counts its load, and starts the command on another core. If that is busy, the command waits
    /// there for milliseconds.
    pub(crate) fn for_command(group: Group) -> Result<Option<Self>, Error> {
        if group == Group::Inherited || has_terminal() {
            return Ok(None);
        }
        let made = without_signals(Self::create).and_then(|made| made);
        made.map(Some).map_err(|error| Error::system("cannot start a process", error))
    }

    /// Makes an empty group. Call this with all signals blocked.
    fn create() -> io::Result<Self> {
        // Without a signal at its end, it is also hidden from a wait for "any child", with which
        // `descendants` looks for orphans of the command. qemu-user insists on SIGCHLD.
        // SAFETY: all signals are blocked, and the leader is reaped on drop, before its stack.
        let start = |at_end| unsafe { fork_to_end(at_end) };
        let leader = match start(None) {
            Err(Errno::EINVAL) => start(Some(libc::SIGCHLD)),
            started => started,
        };
        let group = Self { leader: leader.named("clone")? };
        setpgid(group.id(), group.id()).named("setpgid")?;
        Ok(group)
    }

    pub(super) fn id(&self) -> Pid {
        self.leader.process
    }
}

/// Whether rlock has a controlling terminal. Where there is no `/dev/tty`, the standard streams
/// usually tell.
fn has_terminal() -> bool {
    match File::open("/dev/tty") {
        Ok(_) => true,
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => false,
        Err(_) => {
            let (stdin, stdout, stderr) = (stdin(), stdout(), stderr());
            let standard = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
            standard.iter().any(|stream| tcgetpgrp(stream).is_ok())
        }
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        // The leader may have been suspended before it exited, and nobody would resume its group.
        let _ = kill(self.id(), Signal::SIGKILL);
        // Process 1 of a container might never reap it.
        while waitpid(self.id(), Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
    }
}
