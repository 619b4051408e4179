//! New processes, even in sandboxes that refuse the fast way to start them, and their ends.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use nix::errno::Errno;
use nix::libc::{self, c_int, c_void};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::system::call::Named;
use crate::system::thread::without_signals;

/// How much stack a thread may use from `fork` to the system call. A debug build uses less than 1
/// KiB.
const IN_USE: usize = 4096;

/// The stack of a process that exits at once.
type SmallStack = Box<[MaybeUninit<u8>]>;

/// Starts a process that runs `run`, and exits with the status that `run` returns.
///
/// The process usually shares rlock's memory, and this thread sleeps until it execs or exits, as
/// after vfork(2). This saves copying the page tables, a tenth of the time that a short command
/// takes. A sandbox may refuse it, or silently turn it into a plain fork, as qemu-user does. The
/// process then has a copy of rlock's memory, and this thread does not wait for it.
///
/// The process continues on the stack of this thread, again as after vfork(2). A library that the
/// user preloads may wrap execve(2), as fakechroot does, and needs much stack for it.
///
/// # Safety
///
/// Call this with all signals blocked, because a signal must not take effect in the new process.
/// `run` may only make system calls and store values: it must not allocate or lock.
#[inline(never)] // Otherwise `run` might be anywhere in the frame of the caller.
pub(super) unsafe fn fork(run: &dyn Fn() -> c_int) -> nix::Result<Pid> {
    extern "C" fn enter(run: *mut c_void) -> c_int {
        // SAFETY: this is the pointer to `run` below, which lives until the process execs or exits:
        // in shared memory while the thread sleeps, or in the process's copy.
        let run: &dyn Fn() -> c_int = unsafe { *run.cast() };
        run()
    }
    let argument = (&raw const run).cast_mut();
    let stack = argument.cast::<u8>().wrapping_sub(IN_USE);
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: until the process execs or exits, this thread sleeps, so what the process reads does
    // not change. The stack begins below what this thread uses of it. The caller promises the rest.
    unsafe { clone(enter, argument.cast(), stack, flags) }
}

/// Whether children begin in another PID namespace, as after unshare(2). No command can start there:
/// it does not see rlock as its parent, or the leader of its group has ended as the init of that
/// namespace.
pub(crate) fn leave_pid_namespace() -> bool {
    let [own, theirs] = ["pid", "pid_for_children"]
        .map(|kind| std::fs::read_link(format!("/proc/self/ns/{kind}")).ok());
    own.is_some() && own != theirs
}

/// A process that exits at once. Until it is reaped, on drop, the kernel does not reuse its ID.
pub(crate) struct ShortLived {
    pid: Pid,
    /// The process may use it until it is reaped.
    _stack: SmallStack,
}

impl ShortLived {
    /// Does not wait for its end. The kernel announces that with no signal, so only a wait with
    /// `__WALL` sees it.
    pub(crate) fn start() -> io::Result<Self> {
        extern "C" fn end(_: *mut c_void) -> c_int {
            0
        }
        // It is not initialized, so that only the page that is used costs time.
        let mut stack = Box::new_uninit_slice(1024);
        let top = stack.as_mut_ptr_range().end.cast();
        // SAFETY: all signals are blocked. The process only makes the system call that ends it, and
        // its stack is dropped after it is reaped.
        let start = |at_end| unsafe { clone(end, null_mut(), top, at_end) };
        let started = without_signals(|| match start(0) {
            // qemu-user insists on a signal.
            Err(Errno::EINVAL) => start(libc::SIGCHLD),
            started => started,
        });
        Ok(Self { pid: started?.named("clone")?, _stack: stack })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for ShortLived {
    fn drop(&mut self) {
        // It may have been suspended before it exited, and nobody would resume it.
        let _ = kill(self.pid, Signal::SIGKILL);
        // Process 1 of a container might never reap it.
        while waitpid(self.pid, Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
    }
}

/// Starts a process that shares rlock's memory or, if that is refused, has a copy of it. This does
/// not use `clone` of nix, which takes an initialized stack.
///
/// # Safety
///
/// It must be safe to call `enter` with `argument` in a new process, on a stack that grows down
/// from `stack`. Nothing else may use that memory until the process execs or exits.
unsafe fn clone(
    enter: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
    stack: *mut u8,
    flags: c_int,
) -> nix::Result<Pid> {
    // A stack begins at a multiple of 16.
    let begin = stack.wrapping_sub(stack.addr() % 16);
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

/// A child that has ended. This does not use waitid and waitpid of nix, which return an error for
/// an end by a real-time signal.
pub(crate) fn ended(
    kind: libc::idtype_t,
    id: libc::id_t,
    flags: c_int,
) -> nix::Result<Option<Pid>> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | flags;
    // SAFETY: the pointer is valid for writes of this structure.
    let waited = unsafe { libc::waitid(kind, id, information.as_mut_ptr(), flags) };
    Errno::result(waited)?;
    // SAFETY: zeroes are a valid siginfo_t, and waitid has filled in the fields of SIGCHLD, or left
    // it as it was if no child has ended.
    let pid = unsafe { information.assume_init().si_pid() };
    Ok((pid != 0).then_some(Pid::from_raw(pid)))
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use nix::sys::wait::WaitStatus;

    use super::*;

    #[test]
    fn a_new_process_may_use_much_stack() {
        #[inline(never)]
        fn run() -> c_int {
            let buffer = black_box([7u8; 512 * 1024]);
            c_int::from(buffer[0])
        }
        let pid = without_signals(|| {
            // SAFETY: all signals are blocked, and `run` only stores values.
            unsafe { fork(&run) }
        });
        let pid = pid.unwrap().unwrap();
        assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, 7)));
    }
}
