//! New processes, even in sandboxes that refuse the fast way to start them.

use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::libc::{self, c_int, c_void};
use nix::unistd::Pid;

/// The stack of a new process until its exec. It is not initialized, so that only the page that is
/// used costs time.
pub(super) struct Stack(Box<[MaybeUninit<u8>]>);

impl Stack {
    pub(super) fn new() -> Self {
        // A debug build needs a few KiB.
        Self(Box::new_uninit_slice(32 * 1024))
    }
}

/// Starts a process that runs `run` on `stack`, and exits with the status that `run` returns. The
/// kernel announces its end with the signal `at_end`; without one, only a wait with `__WALL` sees
/// the end.
///
/// The process usually shares rlock's memory, and this thread sleeps until it execs or exits, as
/// after vfork(2). This saves copying the page tables, a tenth of the time that a short command
/// takes. A sandbox may refuse it, or silently turn it into a plain fork, as qemu-user does. The
/// process then has a copy of rlock's memory, and this thread does not wait for it.
///
/// # Safety
///
/// Call this with all signals blocked, because a signal must not take effect in the new process.
/// `run` may only make system calls and store values: it must not allocate or lock.
pub(super) unsafe fn fork(
    run: &dyn Fn() -> c_int,
    stack: &mut Stack,
    at_end: Option<c_int>,
) -> nix::Result<Pid> {
    let at_end = at_end.unwrap_or(0);
    // SAFETY: until the process execs or exits, this thread sleeps, so what the process reads does
    // not change. The caller promises the rest.
    match unsafe { clone(run, stack, libc::CLONE_VM | libc::CLONE_VFORK | at_end) } {
        // Any other error, such as a limit on processes, would be the same for a plain fork.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM) => {
            // SAFETY: the process has its own memory. The caller promises the rest.
            unsafe { clone(run, stack, at_end) }
        }
        started => started,
    }
}

/// Like `fork`, but without a second attempt. This does not use `clone` of nix, which takes an
/// initialized stack.
///
/// # Safety
///
/// As for `fork`. If the process shares rlock's memory, this thread must sleep until the process
/// execs or exits.
unsafe fn clone(run: &dyn Fn() -> c_int, stack: &mut Stack, flags: c_int) -> nix::Result<Pid> {
    extern "C" fn enter(run: *mut c_void) -> c_int {
        // SAFETY: this is the pointer to `run` below, which lives until the process execs or exits:
        // in shared memory while the thread sleeps, or in the process's copy.
        let run: &dyn Fn() -> c_int = unsafe { *run.cast() };
        run()
    }
    let end = stack.0.as_mut_ptr_range().end;
    // The stack grows down, and begins at a multiple of 16.
    let begin = end.wrapping_sub(end.addr() % 16);
    // SAFETY: nothing else uses the stack, and the caller promises the rest.
    let pid =
        unsafe { libc::clone(enter, begin.cast(), flags, (&raw const run).cast_mut().cast()) };
    Errno::result(pid).map(Pid::from_raw)
}
