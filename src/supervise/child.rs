//! A command that runs, started as its caller would have started it.

use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgid, getpgrp};
use rustix::io::retry_on_intr;
use rustix::process::{WaitOptions, waitpid};

use super::command::Command;
use super::group::OwnGroup;
use super::process::Process;
use crate::exit::Exit;
use crate::rules::Instant;
use crate::rules::supervisor::stops;
use crate::system::children::ended;
use crate::system::inherited::Inherited;
use crate::system::signals::Signals;
use crate::system::spawn::{NotStarted, spawn};

/// A command that has been started. The kernel does not reuse its process ID until it is reaped.
pub(super) struct Child<'a> {
    pid: Pid,
    /// The group it was started in, unless that is rlock's group.
    group: Option<&'a OwnGroup>,
    /// Whether rlock has sent it a signal to stop, and none to continue since. It may stop only
    /// later: for example, a process that waits after vfork(2) cannot stop.
    is_to_stop: bool,
}

impl<'a> Child<'a> {
    /// Starts the command as [`spawn`] does.
    pub(super) fn start(
        command: &'a Command,
        signals: &mut Signals,
        inherited: Inherited,
        stop_at: Instant,
    ) -> Result<Self, NotStarted> {
        let program = command.prepare()?;
        let group = command.group.as_ref();
        signals.mark_unreached(u32::MAX);
        let spawned = spawn(&program, group.map(OwnGroup::id), inherited, stop_at)?;
        signals.mark_unreached(spawned.unreached);
        Ok(Self { pid: spawned.pid, group, is_to_stop: false })
    }

    /// Sends a signal to the command, even if it has left the group that was made for it, and to
    /// all of that group. An error only means that no such process is left.
    pub(super) fn signal(&mut self, signal: Signal) {
        self.is_to_stop = stops(signal) || self.is_to_stop && signal != Signal::SIGCONT;
        let own = self.group.map(OwnGroup::id);
        if let Some(group) = own {
            let _ = killpg(group, signal);
        }
        if own.is_none() || self.present_group() != own {
            let _ = kill(self.pid, signal);
        }
    }

    /// Whether `signal` reaches this process too.
    pub(super) fn includes(&self, process: &Process) -> bool {
        let in_group = self.group.is_some_and(|group| group.id() == process.group);
        in_group || process.pid == self.pid
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether this process has one of the IDs that must not be reused yet: the command's and its
    /// group's.
    pub(super) fn reserves(&self, process: Pid) -> bool {
        process == self.pid || self.group.is_some_and(|group| group.id() == process)
    }

    /// Whether it is in rlock's group now, so that the terminal sends its signals to both.
    pub(super) fn shares_group(&self) -> bool {
        self.present_group() == Some(getpgrp())
    }

    /// The group that the command is in now. An interactive shell makes its own.
    fn present_group(&self) -> Option<Pid> {
        getpgid(Some(self.pid)).ok()
    }

    /// Continues the command if it is stopped, or about to stop because rlock told it to, and its
    /// group if that was made for it. If its shell has continued the whole job, the command gets no
    /// second SIGCONT.
    pub(super) fn resume(&mut self) {
        if self.group.is_some() || self.is_to_stop || self.is_stopped() {
            self.signal(Signal::SIGCONT);
        }
    }

    fn is_stopped(&self) -> bool {
        // If nothing reaps this state, the kernel reports it for as long as it lasts.
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        matches!(waitid(Id::Pid(self.pid), flags), Ok(WaitStatus::Stopped(..)))
    }

    /// Whether the command has ended. Does not reap it, so that its process ID is not reused.
    pub(super) fn has_ended(&self) -> bool {
        let id = self.pid.as_raw().unsigned_abs();
        !matches!(ended(libc::P_PID, id, libc::WNOWAIT), Ok(None) | Err(Errno::EINTR))
    }

    /// Waits for the command to end. Returns how rlock must end to look the same to its caller. This
    /// does not use waitpid of nix, which returns an error for an end by a real-time signal.
    pub(super) fn reap(self) -> io::Result<Exit> {
        let pid = rustix::process::Pid::from_raw(self.pid.as_raw());
        let reaped = retry_on_intr(|| waitpid(pid, WaitOptions::empty()))?;
        let ends = reaped.map(|(_, status)| (status.exit_status(), status.terminating_signal()));
        match ends {
            Some((Some(code), _)) => Ok(Exit::Status(u8::try_from(code).unwrap_or(u8::MAX))),
            Some((None, Some(signal))) => Ok(Exit::Signal(signal)),
            _ => Err(io::Error::other("unexpected wait status of the command")),
        }
    }
}
