//! Kills a process at any of its system calls, or pauses it.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::libc::c_long;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::limit::Process;

/// Runs a command, and kills it when it enters the system call that is `calls` calls after its
/// first `from`. Returns false if it ends before. It must not start a thread before that.
#[track_caller]
pub fn kill_at(command: &mut Command, from: c_long, calls: usize) -> bool {
    // SAFETY: one system call between fork and exec, which touches no memory.
    unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Process::start(command);
    let pid = Pid::from_raw(i32::try_from(process.id()).unwrap());
    // It stops at its exec.
    assert_eq!(stop(pid), Some(Stop::Signal(Signal::SIGTRAP)));
    ptrace::setoptions(pid, Options::PTRACE_O_TRACESYSGOOD).unwrap();
    let mut signal = None;
    let mut passed = None;
    loop {
        ptrace::syscall(pid, signal.take()).unwrap();
        match stop(pid) {
            None => return false,
            Some(Stop::Signal(other)) => signal = Some(other),
            Some(Stop::Call(number)) if passed.is_some() || number == from => {
                if passed == Some(calls) || calls == 0 {
                    process.kill();
                    return true;
                }
                passed = Some(passed.map_or(1, |passed| passed + 1));
            }
            Some(_) => {}
        }
    }
}

/// Follows the main thread of a process to its end. Returns the longest CPU time that it used between
/// two waits with poll(2).
#[track_caller]
pub fn longest_turn(process: u32) -> Duration {
    let pid = Pid::from_raw(process.cast_signed());
    ptrace::seize(pid, Options::PTRACE_O_TRACESYSGOOD).unwrap();
    ptrace::interrupt(pid).unwrap();
    let used = || {
        let times =
            std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
        times.split(' ').next().and_then(|time| time.parse().ok()).map(Duration::from_nanos)
    };
    let (mut waits, mut begun, mut longest) = (false, None, Duration::ZERO);
    while let Some(stop) = stop(pid) {
        match stop {
            Stop::Call(nix::libc::SYS_poll | nix::libc::SYS_ppoll) => {
                waits = true;
                let turn = begun.take().and_then(|begun| Some(used()? - begun));
                longest = longest.max(turn.unwrap_or_default());
            }
            Stop::Result if std::mem::take(&mut waits) => begun = used(),
            _ => {}
        }
        let signal = if let Stop::Signal(signal) = stop { Some(signal) } else { None };
        // What the process itself is sent. The others are stops of the tracer.
        ptrace::syscall(pid, signal.filter(|&signal| signal != Signal::SIGTRAP)).unwrap();
    }
    waitpid(pid, None).unwrap();
    longest
}

/// A process that runs no code, whatever it is sent, as in a container that is paused.
pub struct Paused(Vec<Pid>);

impl Paused {
    /// Pauses a process and all its threads until this is dropped, on this thread.
    #[track_caller]
    pub fn new(process: u32) -> Self {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
        let threads = threads.map(|thread| thread.file_name().into_string().unwrap());
        let threads: Vec<Pid> = threads.map(|id| Pid::from_raw(id.parse().unwrap())).collect();
        for &thread in &threads {
            ptrace::seize(thread, Options::empty()).unwrap();
            ptrace::interrupt(thread).unwrap();
            waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        }
        Self(threads)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        for &thread in &self.0 {
            ptrace::detach(thread, None).unwrap();
        }
    }
}

/// Why a traced process has stopped.
#[derive(Debug, PartialEq)]
enum Stop {
    /// It enters a system call.
    Call(c_long),
    /// It has left a system call.
    Result,
    Signal(Signal),
}

/// Waits for the next stop; `None` if the process has ended.
fn stop(pid: Pid) -> Option<Stop> {
    // Leaves the end of the process to `Process`.
    let events = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(pid), events).unwrap() {
        WaitStatus::PtraceSyscall(_) => {
            let info = ptrace::syscall_info(pid).unwrap();
            if info.op != nix::libc::PTRACE_SYSCALL_INFO_ENTRY {
                return Some(Stop::Result);
            }
            // SAFETY: this is the part that a stop at an entry sets.
            let number = unsafe { info.u.entry.nr };
            Some(Stop::Call(c_long::try_from(number).unwrap()))
        }
        WaitStatus::Stopped(_, signal) => Some(Stop::Signal(signal)),
        WaitStatus::PtraceEvent(_, signal, _) => Some(Stop::Signal(signal)),
        WaitStatus::Exited(..) | WaitStatus::Signaled(..) => None,
        other => panic!("{other:?}"),
    }
}
