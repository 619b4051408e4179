//! A process that rlock did not start: its descendants, and its stderr.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Signal};
use rustix::process::{kill_process, pidfd_getfd, pidfd_open, pidfd_send_signal};

use super::process::{PAUSE, Process};
use crate::report::Report;
use crate::system::poll::{Want, is_ready};

/// How many descriptors are kept free to read /proc and to report the loss.
const RESERVE: rlim_t = 8;

/// The limit on searches for descendants that must be stopped. A process stops late if it waits for
/// a disk, or for a child that it started with vfork(2).
const ROUNDS: u32 = 100;

/// The limit on open descriptors if the system does not tell.
const USUAL_LIMIT: rlim_t = 1024;

/// A process, identified by a pidfd, because a process ID may be reused.
pub(crate) struct Watched {
    pid: Pid,
    process: OwnedFd,
    /// The descendants found so far, each after its parent. They are looked up only when the
    /// process is asked to end.
    descendants: Vec<Descendant>,
    /// The limit on open descriptors.
    descriptors: rlim_t,
}

/// Whether a process or one of its descendants remains.
pub(super) enum Remaining<'a> {
    None,
    /// The pidfd of one that has not ended. It becomes readable when that process ends.
    Process(BorrowedFd<'a>),
    /// Some have not ended, but have no pidfd that would announce it.
    Unobservable,
}

impl Watched {
    /// `process` is a pidfd of the process with this ID.
    pub(crate) fn new(pid: Pid, process: OwnedFd) -> Self {
        Self { pid, process, descendants: Vec::new(), descriptors: raise_limit() }
    }

    /// Asks the process and its descendants to end, even if they are stopped.
    pub(super) fn terminate(&mut self) {
        // First, because descendants can be found only while their parents exist.
        self.find_descendants();
        for signal in [Signal::TERM, Signal::CONT] {
            // The script first, or it could continue with its next line when its child ends.
            let _ = pidfd_send_signal(&self.process, signal);
            for descendant in &self.descendants {
                descendant.signal(signal);
            }
        }
    }

    /// Kills the process and its descendants. They are stopped first: a stopped process starts no
    /// others, and remains the parent of those it started until all are found.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::STOP);
        for _ in 0..ROUNDS {
            // A process that is starting another stops only once the other exists. So a search is
            // certain to find all of them only if all known ones have stopped before it.
            let have_halted = self.have_halted();
            let found = self.find_descendants();
            if found.is_empty() && have_halted {
                break;
            }
            for descendant in found {
                descendant.signal(Signal::STOP);
            }
            thread::sleep(PAUSE);
        }
        self.signal(Signal::KILL);
    }

    /// Whether the process and its descendants have stopped or ended.
    fn have_halted(&self) -> bool {
        (has_ended(self.process.as_fd()) || Process::has_halted(self.pid))
            && self.descendants.iter().all(|one| one.has_ended() || Process::has_halted(one.pid))
    }

    /// Signals children before their parents. When the end of a parent orphans a group, the kernel
    /// continues the stopped processes in it.
    fn signal(&self, signal: Signal) {
        for descendant in self.descendants.iter().rev() {
            descendant.signal(signal);
        }
        let _ = pidfd_send_signal(&self.process, signal);
    }

    /// Returns the descendants that were not known before.
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

    /// The pidfd of the process itself, whether it has ended or not.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// What has not ended yet, starting with the process itself.
    pub(super) fn remaining(&self) -> Remaining<'_> {
        let descendants = self.descendants.iter().filter_map(|one| one.process.as_ref());
        let mut all = std::iter::once(&self.process).chain(descendants).map(AsFd::as_fd);
        match all.find(|process| !has_ended(*process)) {
            Some(process) => Remaining::Process(process),
            None if self.descendants.iter().all(Descendant::has_ended) => Remaining::None,
            None => Remaining::Unobservable,
        }
    }

    /// Writes to the stderr of the process why it is stopped, or to the system log if that stderr
    /// cannot be reached.
    pub(super) fn warn(&self, report: &Report, why: &str) {
        let mut lines = vec![format!("{why}; stopping the script (pid {})", self.pid)];
        if !Process::can_be_found() {
            lines.push(
                "cannot read /proc, so processes started by the script keep running; mount /proc"
                    .into(),
            );
        }
        let spoken = self.stderr().is_some_and(|stderr| {
            // Only briefly: a reader of that pipe would wait for its end until rlock closes it.
            let null = OpenOptions::new().write(true).open("/dev/null");
            let lent = null.is_ok() && rustix::stdio::dup2_stderr(stderr).is_ok();
            if lent {
                lines.iter().for_each(|line| report.warn(line));
            }
            null.is_ok_and(|null| rustix::stdio::dup2_stderr(null).is_ok()) && lent
        });
        if !spoken {
            lines.iter().for_each(|line| report.log(line));
        }
    }

    /// The descriptor of the process itself if permitted, because that shares its position in a
    /// file; otherwise the same file, opened again.
    fn stderr(&self) -> Option<File> {
        if let Ok(stderr) =
            pidfd_getfd(&self.process, libc::STDERR_FILENO, PidfdGetfdFlags::empty())
        {
            return Some(File::from(stderr));
        }
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let stderr = options.open(format!("/proc/{}/fd/{}", self.pid, libc::STDERR_FILENO)).ok();
        // If the process has ended, its ID may have led to another process.
        stderr.filter(|_| !has_ended(self.process.as_fd()))
    }
}

/// A process that the watched process, or another descendant, has started.
struct Descendant {
    pid: Pid,
    started: u64,
    /// A pidfd, unless no descriptor was left for it.
    process: Option<OwnedFd>,
}

impl Descendant {
    fn new(pid: Pid, started: u64, descriptors: rlim_t) -> Self {
        let number = rustix::process::Pid::from_raw(pid.as_raw());
        let process = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        // A new descriptor has the lowest free number.
        let last = descriptors.saturating_sub(RESERVE);
        let process = process.filter(|process| {
            rlim_t::try_from(process.as_raw_fd()).is_ok_and(|number| number < last)
        });
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

/// Raises the limit on descriptors as far as possible and returns it. rlock has inherited the limit
/// of the script, which is meant for what the script opens.
fn raise_limit() -> rlim_t {
    let Ok((current, maximum)) = getrlimit(Resource::RLIMIT_NOFILE) else { return USUAL_LIMIT };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, maximum, maximum);
    if raised.is_ok() { maximum } else { current }
}

/// Whether the process of this pidfd has ended.
pub(crate) fn has_ended(process: BorrowedFd<'_>) -> bool {
    is_ready(process, Want::Read)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_a_process_is_starting_while_it_is_killed_is_killed_too() {
        // The size of this process makes fork(2) take as long as a search for descendants.
        let script = "$| = 1; my @memory = map { [$_] } 1 .. 3e5; print \"READY\\n\"; while (1) {
            my $child = fork // next;
            if (!$child) { sleep 10; print 'escaped'; exit }
            kill KILL => $child; waitpid $child, 0 }";
        // A search that does not wait for the fork misses the child in most attempts.
        for _ in 0..10 {
            let mut perl = Command::new("perl");
            let mut perl = perl.args(["-e", script]).stdout(Stdio::piped()).spawn().unwrap();
            let mut told = BufReader::new(perl.stdout.take().unwrap());
            assert_eq!(told.by_ref().lines().next().unwrap().unwrap(), "READY");
            let pid = rustix::process::Pid::from_child(&perl);
            let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            Watched::new(Pid::from_raw(pid.as_raw_nonzero().get()), process).kill();
            // This pipe ends when the last process ends.
            let mut rest = String::new();
            told.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "");
            perl.wait().unwrap();
        }
    }
}
