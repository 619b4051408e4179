//! A process group that no living process leads.
//!
//! The leader of a group may not call setsid(2), and setsid(1) forks if it leads one and returns at
//! once. A command that led its group would therefore behave differently than without rlock.

use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, clone};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, setpgid};

/// Enough for a function that returns at once.
const STACK: usize = 16 * 1024;

/// A group whose leader has ended but is not reaped. Until that happens on drop, neither the group
/// nor its number can become another's.
pub(super) struct OwnGroup {
    leader: Pid,
}

impl OwnGroup {
    /// Makes an empty group. To be called with all signals blocked: the leader shares our memory,
    /// and a handler of ours must not run there.
    pub(super) fn create() -> io::Result<Self> {
        let mut stack = [0; STACK];
        // Not to wait for it (without CLONE_VFORK) is slower: two processors would be at work on the
        // same memory.
        let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
        // Without a signal to tell of its end it is also hidden from a wait for "any child", which
        // looks for orphans of the command.
        let signal = None;
        // SAFETY: the new process has a stack of its own, and we sleep until it has left our memory
        // (CLONE_VFORK). It does nothing but end.
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
        // Process 1 of a container might never do it for us.
        while waitpid(self.leader, Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
    }
}
