//! A command that runs, started as its caller would have started it.

use std::io;

use nix::errno::Errno;
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
use crate::system::inherited::Inherited;
use crate::system::signals::Signals;
use crate::system::spawn::{NotStarted, spawn};

/// A command that has been started.
pub(super) struct Child<'a> {
    /// The kernel may reuse it once the command has been reaped.
    pid: Pid,
    /// How it ended, once it has been reaped.
    end: Option<io::Result<Exit>>,
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
        start_before: Instant,
    ) -> Result<Self, NotStarted> {
        let program = command.prepare()?;
        let group = command.group.as_ref();
        let pid = spawn(&program, group.map(OwnGroup::id), inherited, start_before)?;
        signals.mark_early();
        Ok(Self { pid, end: None, group, is_to_stop: false })
    }

    /// Sends a signal to the command, even if it has left the group that was made for it, and to
    /// all of that group. An error only means that no such process is left.
    pub(super) fn signal(&mut self, signal: Signal) {
        self.is_to_stop = stops(signal) || self.is_to_stop && signal != Signal::SIGCONT;
        let own = self.group.map(OwnGroup::id);
        if let Some(group) = own {
            let _ = killpg(group, signal);
        }
        if self.end.is_none() && (own.is_none() || self.present_group() != own) {
            let _ = kill(self.pid, signal);
        }
    }

    /// Why it cannot be signaled, if so: its program may run as another user.
    pub(super) fn refusal(&mut self) -> Option<Errno> {
        if self.has_ended() { None } else { kill(self.pid, None).err() }
    }

    /// Whether `signal` reaches this process too.
    pub(super) fn includes(&self, process: &Process) -> bool {
        self.is_leader(process.group) || self.is(process.pid)
    }

    /// Whether this process is the command. Once the command has been reaped, no process is.
    pub(super) fn is(&self, process: Pid) -> bool {
        self.end.is_none() && process == self.pid
    }

    /// Whether this process leads the command's group, so that its ID must not be reused.
    pub(super) fn is_leader(&self, process: Pid) -> bool {
        self.group.is_some_and(|group| group.id() == process)
    }

    /// Whether it is in rlock's group now, so that the terminal sends its signals to both.
    pub(super) fn shares_group(&self) -> bool {
        self.end.is_none() && self.present_group() == Some(getpgrp())
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

    /// Whether the command has ended. Reaps it then.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.end.is_none() {
            self.end = self.reap(WaitOptions::NOHANG).transpose();
        }
        self.end.is_some()
    }

    /// Waits for the command to end. Returns how rlock must end to look the same to its caller.
    pub(super) fn wait(mut self) -> io::Result<Exit> {
        match self.end.take() {
            Some(end) => end,
            None => self.reap(WaitOptions::empty())?.ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }

    /// This does not use waitpid of nix, which returns an error for an end by a real-time signal.
    fn reap(&self, options: WaitOptions) -> io::Result<Option<Exit>> {
        let pid = rustix::process::Pid::from_raw(self.pid.as_raw());
        let reaped = retry_on_intr(|| waitpid(pid, options))?;
        let ends = reaped.map(|(_, status)| (status.exit_status(), status.terminating_signal()));
        match ends {
            None => Ok(None),
            Some((Some(code), _)) => Ok(Some(Exit::Status(u8::try_from(code).unwrap_or(u8::MAX)))),
            Some((None, Some(signal))) => Ok(Some(Exit::Signal(signal))),
            Some((None, None)) => Err(io::Error::other("unexpected wait status of the command")),
        }
    }
}
