//! A process that we have not started: itself, what it has started, and where it speaks.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;

use nix::libc;
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal};
use rustix::process::{
    getrlimit, kill_process, pidfd_getfd, pidfd_open, pidfd_send_signal, setrlimit,
};

use super::process::{Process, ROUNDS};
use crate::report::Report;
use crate::system::poll::{Want, is_ready};

/// Descriptors that are not used for descendants: reading /proc and telling the reason take some.
const RESERVE: u64 = 8;

/// A process, which stays the same one even if its number is given to another.
pub(crate) struct Watched {
    pid: Pid,
    process: OwnedFd,
    /// What it had started when it was told to end, and what those have started since, each after
    /// its parent.
    descendants: Vec<Descendant>,
    /// How many descriptors there may be.
    descriptors: u64,
}

/// What is left of a process and of all that it has started.
pub(super) enum Rest<'a> {
    Gone,
    /// A pidfd of one that has not ended.
    Alive(BorrowedFd<'a>),
    /// Some have not ended, but nothing tells when they do.
    Numbers,
}

impl Watched {
    /// `process` is a pidfd of the process with this number.
    pub(crate) fn new(pid: Pid, process: OwnedFd) -> Self {
        Self { pid, process, descendants: Vec::new(), descriptors: raise_limit() }
    }

    /// Asks it and all that it has started to end, even if they are stopped.
    pub(super) fn terminate(&mut self) {
        // Before the first ends: what it has started is found through it only.
        self.find_descendants();
        for signal in [Signal::TERM, Signal::CONT] {
            // The script before what it waits for, or it could go on with its next line.
            let _ = pidfd_send_signal(&self.process, signal);
            for descendant in &self.descendants {
                descendant.signal(signal);
            }
        }
    }

    /// Ends it and all that it has started. What is known stops at once; what is stopped starts
    /// nothing, and stays the parent of what it has started until all of that is found.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::STOP);
        for _ in 0..ROUNDS {
            let found = self.find_descendants();
            if found.is_empty() {
                break;
            }
            for descendant in found {
                descendant.signal(Signal::STOP);
            }
        }
        self.signal(Signal::KILL);
    }

    /// Children before their parents, whose end would let them go on.
    fn signal(&self, signal: Signal) {
        for descendant in self.descendants.iter().rev() {
            descendant.signal(signal);
        }
        let _ = pidfd_send_signal(&self.process, signal);
    }

    /// Returns those that were not known.
    fn find_descendants(&mut self) -> &[Descendant] {
        self.descendants.retain(|descendant| !descendant.has_ended());
        let mut roots: Vec<Pid> = self.descendants.iter().map(|known| known.pid).collect();
        if !has_ended(self.process.as_fd()) {
            roots.push(self.pid);
        }
        let known = self.descendants.len();
        for (pid, process) in Process::descendants_of(roots) {
            if !process.is_dead {
                self.descendants.push(Descendant::new(pid, process.started, self.descriptors));
            }
        }
        self.descendants.get(known..).unwrap_or_default()
    }

    /// Itself, ended or not.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// What of it has not ended, itself first.
    pub(super) fn rest(&self) -> Rest<'_> {
        let descendants = self.descendants.iter().filter_map(|one| one.process.as_ref());
        let mut all = std::iter::once(&self.process).chain(descendants).map(AsFd::as_fd);
        match all.find(|process| !has_ended(*process)) {
            Some(process) => Rest::Alive(process),
            None if self.descendants.iter().all(Descendant::has_ended) => Rest::Gone,
            None => Rest::Numbers,
        }
    }

    /// Says on its stderr why it is stopped, or in the system's log if it has none that can be
    /// reached.
    pub(super) fn warn(&self, report: &Report, why: &str) {
        let mut lines = vec![format!("{why}; stopping the script (pid {})", self.pid)];
        if !Process::can_be_found() {
            lines.push(
                "cannot read /proc, so processes that the script has started keep running; mount \
                 /proc"
                    .into(),
            );
        }
        let spoken = self.stderr().is_some_and(|stderr| {
            // Only for as long as it takes: whoever reads from a pipe is not to wait for us.
            let null = OpenOptions::new().write(true).open("/dev/null");
            let lent = null.is_ok() && rustix::stdio::dup2_stderr(stderr).is_ok();
            if lent {
                lines.iter().for_each(|line| report.warn(line));
            }
            null.is_ok_and(|null| rustix::stdio::dup2_stderr(null).is_ok()) && lent
        });
        if !spoken {
            lines.iter().for_each(|line| log(&format!("{}{line}", report.subject())));
        }
    }

    /// Its own, if we may have that, since it has the same place in a file then; or else the same
    /// file opened once more.
    fn stderr(&self) -> Option<File> {
        if let Ok(stderr) =
            pidfd_getfd(&self.process, libc::STDERR_FILENO, PidfdGetfdFlags::empty())
        {
            return Some(File::from(stderr));
        }
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let stderr = options.open(format!("/proc/{}/fd/{}", self.pid, libc::STDERR_FILENO)).ok();
        // Of another process by now?
        stderr.filter(|_| !has_ended(self.process.as_fd()))
    }
}

/// Something that the process has started, or that one of those has.
struct Descendant {
    pid: Pid,
    started: u64,
    /// Missing if there is no descriptor left for it.
    process: Option<OwnedFd>,
}

impl Descendant {
    fn new(pid: Pid, started: u64, descriptors: u64) -> Self {
        let number = rustix::process::Pid::from_raw(pid.as_raw());
        let process = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        // A new descriptor has the lowest free number.
        let last = descriptors.saturating_sub(RESERVE);
        let process = process
            .filter(|process| u64::try_from(process.as_raw_fd()).is_ok_and(|number| number < last));
        Self { pid, started, process }
    }

    fn has_ended(&self) -> bool {
        match &self.process {
            Some(process) => has_ended(process.as_fd()),
            None => Process::read(self.pid)
                .is_none_or(|process| process.is_dead || process.started != self.started),
        }
    }

    fn signal(&self, signal: Signal) {
        match (&self.process, rustix::process::Pid::from_raw(self.pid.as_raw())) {
            (Some(process), _) => {
                let _ = pidfd_send_signal(process, signal);
            }
            (None, Some(number)) if !self.has_ended() => {
                let _ = kill_process(number, signal);
            }
            (None, _) => {}
        }
    }
}

/// Allows as many descriptors as the system lets us have, and says how many that are. A script's
/// own limit is for what the script opens.
fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { maximum } else { current };
    limit.unwrap_or(u64::MAX)
}

/// A pidfd is readable from the end of its process on.
pub(crate) fn has_ended(process: BorrowedFd<'_>) -> bool {
    is_ready(process, Want::Read)
}

/// As syslog(3) does, for a user's program in trouble.
fn log(line: &str) {
    let priority = libc::LOG_USER | libc::LOG_ERR;
    let line = format!("<{priority}>rlock[{}]: {line}", std::process::id());
    // There may be no such log, and then nobody is left to be told.
    let _ = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(line.as_bytes(), "/dev/log")
    });
}
