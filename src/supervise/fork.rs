//! New processes, even in sandboxes that refuse the fast way to start them.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use nix::errno::Errno;
use nix::libc::{self, c_int, c_void};
use nix::unistd::Pid;

/// The stack of a new process until its exec. It is not initialized, so that only the page that is
/// used costs time.
pub(super) struct Stack(Box<[MaybeUninit<u8>]>);

impl Stack {
    /// For a process that execs a program. A debug build needs a few KiB.
    pub(super) fn new() -> Self {
        Self(Box::new_uninit_slice(32 * 1024))
    }

    /// For a process that exits at once.
    fn to_end() -> Self {
        Self(Box::new_uninit_slice(1024))
    }
}

/// Starts a process that runs `run` on `stack`, and exits with the status that `run` returns.
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
pub(super) unsafe fn fork(run: &dyn Fn() -> c_int, stack: &mut Stack) -> nix::Result<Pid> {
    extern "C" fn enter(run: *mut c_void) -> c_int {
        // SAFETY: this is the pointer to `run` below, which lives until the process execs or exits:
        // in shared memory while the thread sleeps, or in the process's copy.
        let run: &dyn Fn() -> c_int = unsafe { *run.cast() };
        run()
    }
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: until the process execs or exits, this thread sleeps, so what the process reads does
    // not change, and nothing else uses the stack. The caller promises the rest.
    unsafe { clone(enter, (&raw const run).cast_mut().cast(), stack, flags) }
}

/// A process that exits at once, and its stack.
pub(super) struct ShortLived {
    pub(super) process: Pid,
    _stack: Stack,
}

/// Starts a process that exits at once, and does not wait for its end. The kernel announces the end
/// with the signal `at_end`; without one, only a wait with `__WALL` sees it.
///
/// # Safety
///
/// Call this with all signals blocked, as for `fork`. Reap the process before you drop `ShortLived`:
/// until it is reaped, it may use its stack.
pub(super) unsafe fn fork_to_end(at_end: Option<c_int>) -> nix::Result<ShortLived> {
    extern "C" fn end(_: *mut c_void) -> c_int {
        0
    }
    let mut stack = Stack::to_end();
    // SAFETY: the process only makes the system call that ends it. The caller keeps its stack until
    // it is reaped.
    let process = unsafe { clone(end, null_mut(), &mut stack, at_end.unwrap_or(0)) }?;
    Ok(ShortLived { process, _stack: stack })
}

/// Starts a process that shares rlock's memory or, if that is refused, has a copy of it. This does
/// not use `clone` of nix, which takes an initialized stack.
///
/// # Safety
///
/// It must be safe to call `enter` with `argument` in a new process, on `stack`. Nothing else may
/// use `stack` until that process execs or exits.
unsafe fn clone(
    enter: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
    stack: &mut Stack,
    flags: c_int,
) -> nix::Result<Pid> {
    let end = stack.0.as_mut_ptr_range().end;
    // The stack grows down, and begins at a multiple of 16.
    let begin = end.wrapping_sub(end.addr() % 16);
    let start = |flags| {
        // SAFETY: the caller promises that this is safe.
        Errno::result(unsafe { libc::clone(enter, begin.cast(), flags, argument) })
    };
    let started = match start(libc::CLONE_VM | flags) {
        // Any other error, such as a limit on processes, would also occur with a plain fork.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM) => start(flags & !libc::CLONE_VFORK),
        started => started,
    };
    started.map(Pid::from_raw)
}
