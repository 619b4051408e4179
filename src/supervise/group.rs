//! A process group that no living process leads.
//!
//! The leader of a group may not call setsid(2), and setsid(1) forks and returns at once if it
//! leads a group. A command that led its group would therefore behave differently under rlock.

use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, clone};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, setpgid};

/// Enough for a function that returns at once.
const STACK: usize = 16 * 1024;

/// A group whose leader has ended and is reaped on drop. Until then the kernel does not reuse its
/// ID.
pub(super) struct OwnGroup {
    leader: Pid,
}

impl OwnGroup {
    /// Makes an empty group. Call this with all signals blocked: the leader shares rlock's memory,
    /// and no handler must run there.
    pub(super) fn create() -> io::Result<Self> {
        let mut stack = [0; STACK];
        // Without CLONE_VFORK this is slower, because two processors then work on the same memory.
        let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
        // Without a signal at its end, it is also hidden from a wait for "any child", with which
        // `descendants` looks for orphans of the command.
        let signal = None;
        // SAFETY: the new process has its own stack, and this thread sleeps until that process has
        // ended (CLONE_VFORK), which is all that it does.
        let leader = unsafe { clone(Box::new(|| 0), &mut stack, flags, signal) }?;
        let group = Self { leader };
        setpgid(leader, leader)?;
        Ok(group)
    }

    pub(super) fn id(&self) -> Pid {
        self.leader
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        // Process 1 of a container might never reap it.
        while waitpid(self.leader, Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
    }
}
