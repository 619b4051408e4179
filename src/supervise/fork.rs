//! New processes, even in sandboxes that refuse the fast way to start them.

use nix::errno::Errno;
use nix::libc::c_int;
use nix::sched::{CloneFlags, clone};
use nix::unistd::Pid;

/// Starts a process that runs `run` on `stack`, and exits with the status that this returns. The
/// kernel announces its end with the signal `at_end`; without one, only a wait with `__WALL` sees
/// the end.
///
/// The process usually shares rlock's memory, and this thread sleeps until it execs or exits, as
/// after vfork(2). It then needs no copy of the page tables, which is a tenth of the time that a
/// short command takes. A sandbox may refuse that, or quietly make a plain fork of it, as qemu-user
/// does. The process then has a copy of rlock's memory, and this thread does not wait for it.
///
/// # Safety
///
/// Call this with all signals blocked, because no handler must run in the new process. `run` may
/// only make system calls and store values: it must not allocate or lock.
pub(super) unsafe fn fork(
    run: &dyn Fn() -> isize,
    stack: &mut [u8],
    at_end: Option<c_int>,
) -> nix::Result<Pid> {
    let sharing = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
    // SAFETY: the process has its own stack, and until it execs or exits, this thread sleeps, so
    // what the process reads does not change. The caller promises the rest.
    match unsafe { clone(Box::new(run), stack, sharing, at_end) } {
        // Any other error, such as a limit on processes, would be the same for a plain fork.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM) => {
            // SAFETY: the process has its own memory. The caller promises the rest.
            unsafe { clone(Box::new(run), stack, CloneFlags::empty(), at_end) }
        }
        started => started,
    }
}
