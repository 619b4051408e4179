//! A process that rlock did not start: its descendants, and its stderr.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::{Pid, geteuid, getpgrp};
use rustix::process::{
    PidfdGetfdFlags, Signal, kill_process_group, pidfd_getfd, pidfd_send_signal,
    test_kill_process_group,
};

use super::event_loop::{EventLoop, Processes, Remaining};
use super::process::{KILL_TIME, Process, SEARCH_TIME, none_found, not_killed, pause};
use super::upkeep::Upkeep;
use crate::error::Error;
use crate::report::Report;
use crate::rules::supervisor::Event;
use crate::rules::{Instant, LockOutcome};
use crate::store::Store;
use crate::system::poll::{Want, is_ready};
use crate::system::signals::{Arrived, Signals, test_signal};

/// How long to look for descendants that must be stopped. A process stops late if it waits for a
/// disk, or for a child that it started with vfork(2).
const STOP_TIME: Duration = Duration::from_millis(500);

/// Finds processes that belong to known ones, until a moment.
type Search = fn(&[Pid], Instant) -> Vec<Process>;

/// A process, identified by a pidfd, because a process ID may be reused.
pub(crate) struct Watched {
    pid: Pid,
    process: OwnedFd,
    /// The descendants found so far, each after its parent. They are looked up only when the
    /// process is asked to end. There may be more than rlock may open descriptors.
    descendants: Vec<Process>,
    /// The sessions and process groups that are its own, by their IDs, and have not ended: it leads
    /// them, or a descendant does, or they belong to such a session. They keep their IDs while a
    /// process is in them.
    own: Vec<Pid>,
    /// Its stderr, from when it is asked to end: a process that has ended has none.
    stderr: Option<File>,
}

/// Keeps the lease until the process has ended or has released the lock itself. A signal makes this
/// ask the server at once. Returns the store for the release, unless the lock was released.
pub(crate) fn run(
    mut watched: Watched,
    store: Box<dyn Store>,
    mut signals: Signals,
    mut upkeep: Upkeep,
    report: &Report,
) -> (Option<Box<dyn Store>>, Result<LockOutcome, Error>) {
    upkeep.take_over(store, |problem| watched.warn(report, problem));
    let over = EventLoop::new(&mut watched, &mut upkeep, &mut signals, report).run();
    let (lock, is_released) = (upkeep.lock, upkeep.machine.is_released());
    let store = upkeep.end();
    (
        (!is_released).then_some(store),
        over.map(|()| lock).map_err(|error| Error::system("cannot wait for events", error)),
    )
}

impl Watched {
    /// `process` is a pidfd of the process with this ID.
    pub(crate) fn new(pid: Pid, process: OwnedFd) -> Self {
        Self { pid, process, descendants: Vec::new(), own: Vec::new(), stderr: None }
    }

    /// Whether the process and its descendants have stopped or ended.
    fn have_halted(&self) -> bool {
        (has_ended(self.process()) || Process::has_halted(self.pid))
            && self.descendants.iter().all(|one| one.has_ended() || Process::has_halted(one.pid))
    }

    /// Signals children before their parents. When the end of a parent orphans a group, the kernel
    /// continues the stopped processes in it. A signal to a group leaves no time to start another
    /// process, so it reaches even a process that always starts the next and ends.
    fn signal(&self, signal: Signal) {
        for descendant in self.descendants.iter().rev() {
            descendant.signal(signal);
        }
        let _ = pidfd_send_signal(&self.process, signal);
        for group in self.own.iter().filter_map(|id| rustix::process::Pid::from_raw(id.as_raw())) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Returns the descendants that were not known before: those below known ones or, because their
    /// parents may have ended, those in its own sessions and groups.
    fn find(&mut self, search: Search, until: Instant) -> Vec<Process> {
        self.forget_ended();
        let itself = Process::read(self.pid).filter(|_| !has_ended(self.process()));
        let known = itself.iter().chain(&self.descendants);
        let mut leaders: Vec<Pid> = known.map(|known| known.pid).chain(self.own.clone()).collect();
        self.add_own(itself.as_slice(), &leaders);
        leaders.extend(&self.own);
        let found = search(&leaders, until);
        leaders.extend(found.iter().map(|found| found.pid));
        self.add_own(&found, &leaders);
        self.descendants.extend(&found);
        found
    }

    /// Adds the sessions and groups of these processes that are its own.
    fn add_own(&mut self, processes: &[Process], leaders: &[Pid]) {
        let leaders: HashSet<Pid> = leaders.iter().copied().collect();
        let mut own: HashSet<Pid> = self.own.drain(..).collect();
        for Process { session, group, .. } in processes {
            let has_session = leaders.contains(session);
            own.extend(has_session.then_some(session));
            own.extend((has_session || leaders.contains(group)).then_some(group));
        }
        self.own = own.into_iter().filter(|id| *id != getpgrp()).collect();
    }

    /// Forgets what has ended, before other processes get these IDs.
    fn forget_ended(&mut self) {
        let itself = (!has_ended(self.process())).then_some(self.pid);
        let Self { descendants, own, .. } = self;
        descendants.retain(|descendant| !descendant.has_ended());
        own.retain(|&id| {
            let group = rustix::process::Pid::from_raw(id.as_raw());
            let exists = group.map(test_kill_process_group) != Some(Err(rustix::io::Errno::SRCH))
                || descendants.iter().any(|known| known.session == id);
            let is_known = itself == Some(id) || descendants.iter().any(|known| known.pid == id);
            exists && (is_known || Process::read(id).is_none_or(|leader| leader.is_dead))
        });
    }

    /// The pidfd of the process itself, whether it has ended or not.
    fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Whether the process and its known descendants have ended.
    fn is_gone(&self) -> bool {
        has_ended(self.process()) && self.descendants.iter().all(Process::has_ended)
    }

    fn keep_stderr(&mut self) {
        self.stderr = self.stderr.take().or_else(|| self.stderr());
    }

    /// The descriptor of the process itself if permitted, because that shares its position in a
    /// file; otherwise the same file, opened again. `None` if the process cannot write to it.
    fn stderr(&self) -> Option<File> {
        let is_written = |flags: i32| (flags & libc::O_ACCMODE != libc::O_RDONLY).then_some(());
        if let Ok(stderr) =
            pidfd_getfd(&self.process, libc::STDERR_FILENO, PidfdGetfdFlags::empty())
        {
            is_written(fcntl(&stderr, FcntlArg::F_GETFL).ok()?)?;
            return Some(File::from(stderr));
        }
        // The /proc of another container has other processes.
        Process::can_be_found().then_some(())?;
        is_written(i32::from_str_radix(&field(self.pid, "fdinfo/2", "flags:")?, 8).ok()?)?;
        // Another user could put a file there meanwhile to which only root may write.
        let users = field(self.pid, "status", "Uid:")?;
        (users.split_whitespace().nth(1)? == geteuid().to_string()).then_some(())?;
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let stderr = options.open(format!("/proc/{}/fd/{}", self.pid, libc::STDERR_FILENO)).ok();
        // If the process has ended, its ID may have led to another process.
        stderr.filter(|_| !has_ended(self.process()))
    }
}

impl Processes for Watched {
    fn name(&self) -> String {
        format!("the script (pid {})", self.pid)
    }

    /// The process handles its own signals.
    fn signaled(&mut self, _: Vec<Arrived>) -> Option<Vec<Event>> {
        None
    }

    fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        (!has_ended(self.process())).then(|| self.process())
    }

    fn has_ended(&mut self) -> bool {
        has_ended(self.process())
    }

    /// rlock adopts none of them.
    fn reap(&mut self) -> Remaining {
        Remaining::Living
    }

    /// A process that always starts the next and ends may be in a group that is not empty.
    fn reap_and_look(&mut self, _: Instant) -> Remaining {
        if !self.is_gone() {
            return Remaining::Living;
        }
        self.forget_ended();
        if self.own.is_empty() { Remaining::Nothing } else { Remaining::Living }
    }

    /// Asks the process and its descendants to end, even if they are stopped. Looks for them until a
    /// moment.
    fn terminate(&mut self, until: Instant) {
        self.keep_stderr();
        // First, because descendants can be found only while their parents exist. If there is no
        // time to find all, they are stopped when they must be killed, and found then.
        self.find(Process::below, until);
        if Instant::now() >= until {
            return;
        }
        self.find(Process::led_by, until);
        for signal in [Signal::TERM, Signal::CONT] {
            // The script first, or it could continue with its next line when its child ends.
            let _ = pidfd_send_signal(&self.process, signal);
            for descendant in &self.descendants {
                descendant.signal(signal);
            }
        }
    }

    /// Kills the process and its descendants, and waits for their end. They are stopped first: a
    /// stopped process starts no others, and remains the parent of those it started until all are
    /// found. Meanwhile it does nothing, so the search may take its time.
    fn kill(&mut self) -> Option<String> {
        self.keep_stderr();
        let _ = pidfd_send_signal(&self.process, Signal::STOP);
        self.signal(Signal::STOP);
        let until = Instant::now() + STOP_TIME;
        loop {
            // A process that is starting another stops only once the other exists. So a search is
            // certain to find all of them only if all known ones have stopped before it.
            let have_halted = self.have_halted();
            let search_until = Instant::now() + SEARCH_TIME;
            let mut is_new = false;
            // First those that take no scan of all processes: they must not run for as long as it.
            for search in [Process::below as Search, Process::led_by] {
                for found in self.find(search, search_until) {
                    found.signal(Signal::STOP);
                    is_new = true;
                }
            }
            if !is_new && have_halted || Instant::now() >= until {
                break;
            }
            pause();
        }
        self.signal(Signal::KILL);
        let until = Instant::now() + KILL_TIME;
        // Those in its own groups that the searches have missed.
        self.find(Process::led_by, until);
        while !self.is_gone() && Instant::now() < until {
            pause();
        }
        self.descendants.retain(|descendant| !descendant.has_ended());
        let itself = if has_ended(self.process()) { None } else { Process::read(self.pid) };
        not_killed(&Vec::from_iter(itself.into_iter().chain(self.descendants.iter().copied())))
    }

    fn refusal(&mut self) -> Option<Errno> {
        refusal(self.process())
    }

    fn out_of_reach(&self) -> Option<String> {
        none_found()
    }

    /// Writes to the stderr of the process, or to the system log if that cannot be reached.
    fn warn(&self, report: &Report, what: &str) {
        let kept = self.stderr.as_ref().and_then(|stderr| stderr.try_clone().ok());
        match kept.or_else(|| self.stderr()) {
            Some(stderr) => report.warn_on(stderr, what),
            None => report.log(what),
        }
    }
}

/// A field of a file in /proc about a process.
pub(crate) fn field(pid: Pid, file: &str, name: &str) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

/// Why the process of this pidfd cannot be signaled, if so: its program may run as another user, or a
/// sandbox refuses the call.
pub(crate) fn refusal(process: BorrowedFd<'_>) -> Option<Errno> {
    test_signal(process).err().filter(|_| !has_ended(process))
}

/// Whether the process of this pidfd has ended.
pub(crate) fn has_ended(process: BorrowedFd<'_>) -> bool {
    is_ready(process, Want::Read)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    use rustix::process::{PidfdFlags, pidfd_open};

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
