//! A command that runs, started as its caller would have started it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::errno::Errno;
use nix::libc::{self, c_int};
use nix::sched::{CloneFlags, clone};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgid, getpgrp, getpid, getppid, setpgid};

use super::command::{Command, NotStarted};
use super::group::OwnGroup;
use crate::exit::Exit;
use crate::policy::Group;
use crate::system::clock::Instant;
use crate::system::inherited::Inherited;
use crate::system::thread::without_signals;

/// A command that has been started. The kernel does not reuse its process ID until it is reaped.
pub(super) struct Child {
    pid: Pid,
    /// The group it was started in, unless that is rlock's group.
    group: Option<OwnGroup>,
}

impl Child {
    /// Starts the command with everything that rlock inherited, but never after `stop_at`. Call
    /// this on the main thread, because the command dies with the thread that started it.
    ///
    /// This does not use `std::process::Command`, for two reasons. A child that shares memory with
    /// its parent until it execs (as after vfork(2)) needs no copy of the page tables, which is a
    /// tenth of the time that a short command takes. And every step before the exec is
    /// visible here.
    pub(super) fn start(
        command: &Command,
        inherited: Inherited,
        stop_at: Instant,
    ) -> Result<Self, NotStarted> {
        // A signal to the new process would otherwise run rlock's handler there, in rlock's memory,
        // and would seem to be a signal to rlock.
        without_signals(|| Self::start_unsignalled(command, inherited, stop_at))?
    }

    /// Call this with all signals blocked.
    fn start_unsignalled(
        command: &Command,
        inherited: Inherited,
        stop_at: Instant,
    ) -> Result<Self, NotStarted> {
        let program = command.prepare()?;
        let group = match command.group {
            Group::New => Some(OwnGroup::create()?),
            Group::Inherited => None,
        };
        let (parent, joins) = (getpid(), group.as_ref().map(OwnGroup::id));
        let failed = AtomicI32::new(0);
        let prepared = AtomicBool::new(false);
        let in_child = || {
            let error = prepare(parent, joins, inherited, stop_at).map_or_else(
                |error| error,
                |()| {
                    prepared.store(true, Ordering::Relaxed);
                    program.exec()
                },
            );
            failed.store(error as c_int, Ordering::Relaxed);
            127
        };
        // So large that it is mapped rather than zeroed: only the pages that are used cost time.
        let mut stack = vec![0; 256 * 1024 + program.size_of_arguments()];
        let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
        // SAFETY: the child has its own stack, and this thread sleeps until the child execs or
        // exits (CLONE_VFORK), so what it reads does not change. It makes system calls and stores
        // two values: no allocation, no lock.
        let started = unsafe { clone(Box::new(in_child), &mut stack, flags, Some(libc::SIGCHLD)) };
        let child = Self { pid: started?, group };
        match failed.load(Ordering::Relaxed) {
            0 => Ok(child),
            error => {
                child.reap()?;
                let error = io::Error::from_raw_os_error(error);
                Err(match prepared.load(Ordering::Relaxed) {
                    true => NotStarted::Exec(error),
                    false if error.kind() == io::ErrorKind::TimedOut => NotStarted::TooLate,
                    false => NotStarted::System(error),
                })
            }
        }
    }

    /// Sends a signal to the command, even if it has left the group that was made for it, and to
    /// all of that group. An error only means that no such process is left.
    pub(super) fn signal(&self, signal: Signal) {
        let own = self.group.as_ref().map(OwnGroup::id);
        if let Some(group) = own {
            let _ = killpg(group, signal);
        }
        if own.is_none() || self.present_group() != own {
            let _ = kill(self.pid, signal);
        }
    }

    /// Whether `signal` reaches this process too.
    pub(super) fn includes(&self, process: Pid, its_group: Pid) -> bool {
        let in_group = self.group.as_ref().is_some_and(|group| group.id() == its_group);
        in_group || process == self.pid
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// The group that the command is in now. An interactive shell makes its own.
    pub(super) fn present_group(&self) -> Option<Pid> {
        getpgid(Some(self.pid)).ok()
    }

    /// The groups that may be in the foreground of the terminal while the command has it.
    pub(super) fn groups(&self) -> [Option<Pid>; 2] {
        [self.group.as_ref().map(OwnGroup::id), self.present_group()]
    }

    /// Whether it is in rlock's group now, so that the terminal sends its signals to both.
    pub(super) fn shares_group(&self) -> bool {
        self.present_group() == Some(getpgrp())
    }

    pub(super) fn group(&self) -> Group {
        if self.group.is_some() { Group::New } else { Group::Inherited }
    }

    /// The signal that has stopped the command since the last call, if any.
    pub(super) fn has_stopped(&self) -> Option<Signal> {
        match waitid(Id::Pid(self.pid), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => None,
        }
    }

    /// Whether the command has ended. Does not reap it, so that its process ID is not reused.
    pub(super) fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => false,
            // EINVAL also means that it has ended: by a real-time signal, which nix cannot
            // represent.
            _ => true,
        }
    }

    /// Waits for the command to end. Returns how rlock must end to look the same to its caller.
    pub(super) fn reap(self) -> io::Result<Exit> {
        let mut status = 0;
        loop {
            // SAFETY: the pointer is valid for the one integer that is written.
            let reaped = unsafe { libc::waitpid(self.pid.as_raw(), &raw mut status, 0) };
            match Errno::result(reaped) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let status = ExitStatus::from_raw(status);
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Status(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => return Err(io::Error::other("unexpected wait status of the command")),
        })
    }
}

/// Runs in the new process before it loads the program.
fn prepare(
    parent: Pid,
    group: Option<Pid>,
    inherited: Inherited,
    stop_at: Instant,
) -> Result<(), Errno> {
    if let Some(group) = group {
        setpgid(Pid::from_raw(0), group)?;
    }
    // If rlock dies, it no longer renews the lease, so its command must die too. rlock may have
    // died before this call, which the check of the parent detects.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        return Err(Errno::ESRCH);
    }
    inherited.restore()?;
    // The child may have been stopped on the way here, and rlock with it.
    if Instant::now() < stop_at { Ok(()) } else { Err(Errno::ETIMEDOUT) }
}
