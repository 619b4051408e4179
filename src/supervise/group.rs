//! A process group that no living process leads.
//!
//! The leader of a group may not call setsid(2), and setsid(1) forks and returns at once if it
//! leads a group. A command that led its group would therefore behave differently under rlock.

use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, setpgid};

use super::fork::{ShortLived, fork_to_end};
use crate::system::call::Named;

/// A group whose leader has ended and is reaped on drop. Until then the kernel does not reuse its
/// ID.
pub(super) struct OwnGroup {
    leader: ShortLived,
}

impl OwnGroup {
    /// Makes an empty group. Call this with all signals blocked.
    pub(super) fn create() -> io::Result<Self> {
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

impl Drop for OwnGroup {
    fn drop(&mut self) {
        // The leader may have been suspended before it exited, and nobody would resume its group.
        let _ = kill(self.id(), Signal::SIGKILL);
        // Process 1 of a container might never reap it.
        while waitpid(self.id(), Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
    }
}
