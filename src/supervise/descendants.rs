//! The processes that the command started, even those that left its group or session. rlock is
//! their subreaper: it becomes the parent of orphans among them, and can find them.

use std::collections::{HashMap, HashSet};
use std::thread;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

use super::child::Child;
use super::process::{NONE_FOUND, PAUSE, Process, ended};
use crate::rules::Token;

/// The limit on rounds of [`Descendants::kill_all`]. A chain of processes, each of which starts the
/// next and exits, escapes most rounds, but not many in a row. The limit ends the loop if a
/// descendant waits for a disk, belongs to another user, or is restarted by such a process.
const KILL_ROUNDS: u32 = 1000;

/// A process ID that no process has.
const GONE: Pid = Pid::from_raw(0);

/// Finds the descendants of the command.
pub(super) struct Descendants {
    /// Children that this process had before it became rlock. `exec` in a shell keeps its children.
    preexisting_children: Vec<Pid>,
    /// The environments of the command and its descendants contain it; those of its earlier
    /// children do not.
    token: Token,
    /// Whether orphans become children of rlock.
    adopts: bool,
}

impl Descendants {
    /// Makes rlock, rather than init, the parent of orphans among its descendants. Call this before
    /// the command starts. `leader` is that of the command's group.
    pub(super) fn adopt(token: Token, leader: Option<Pid>) -> Self {
        // A sandbox may refuse this. Only after a loss does it matter.
        let adopts = nix::sys::prctl::set_child_subreaper(true).is_ok();
        let mut preexisting_children = Vec::new();
        // It fails only if there are no children. To look for them at each start would take longer.
        if ended(libc::P_ALL, 0, libc::WNOWAIT).is_ok() {
            let children = children_in(&Process::all()).into_iter();
            preexisting_children.extend(children.filter(|child| Some(*child) != leader));
        }
        Self { preexisting_children, token, adopts }
    }

    /// Sends a signal to all descendants that a signal to the command does not reach.
    pub(super) fn signal_all(&self, command: &Child<'_>, signal: Signal) {
        let mut beyond = self.live(command, &Process::all());
        beyond.retain(|process| !command.includes(process));
        for process in beyond {
            // Its process ID cannot have passed to another process since the scan. Adopted children
            // keep their IDs until rlock reaps them. The ID of any other process is reused only
            // after all other IDs.
            let _ = kill(process.pid, signal);
        }
    }

    /// Kills the command and all its descendants, including those started meanwhile. Returns once
    /// all have ended, or the rest cannot be killed.
    pub(super) fn kill_all(&mut self, command: &Child<'_>) {
        let mut killed = HashSet::new();
        for _ in 0..KILL_ROUNDS {
            self.kill_adopted(command);
            self.reap_all(command);
            let all = Process::all();
            if self.none_left(command, &all) {
                return;
            }
            let mut is_new = false;
            for Process { pid, .. } in self.live(command, &all) {
                is_new |= kill(pid, Signal::SIGKILL).is_ok() && killed.insert(pid);
            }
            if !is_new {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Kills the children of rlock. This finds even a process that starts another and exits at
    /// once. A scan takes so much longer that such a process would exit meanwhile.
    fn kill_adopted(&self, command: &Child<'_>) {
        // The last child is the newest, and the most likely to be alive. None of them has been
        // reaped, so each still has its process ID.
        for child in Process::children().unwrap_or_default().into_iter().rev() {
            if child != command.pid() && self.is_of(command, child) {
                let _ = kill(child, Signal::SIGKILL);
            }
        }
    }

    /// Whether no descendant is left, not even in the command's group.
    pub(super) fn are_gone(&mut self, command: &Child<'_>) -> bool {
        self.reap_all(command);
        self.none_left(command, &Process::all())
    }

    /// Whether no descendant is left. `first` is a scan of all processes.
    ///
    /// During a scan, a process may start another and exit. The new process is then a child of
    /// rlock or leaves one behind, and rlock reaps none meanwhile. So if a second scan finds the
    /// same children, the first one has missed nothing.
    fn none_left(&self, command: &Child<'_>, first: &HashMap<Pid, Process>) -> bool {
        if !self.live(command, first).is_empty() {
            return false;
        }
        let second = Process::all();
        self.live(command, &second).is_empty() && children_in(first) == children_in(&second)
    }

    /// Why some of the descendants that a signal to the command does not reach cannot be found;
    /// `None` if all can.
    pub(super) fn out_of_reach(&self) -> Option<&'static str> {
        if !Process::can_be_found() {
            Some(NONE_FOUND)
        } else if !self.adopts {
            Some(
                "cannot adopt orphans, so processes that the command started may keep running; \
                 allow prctl(PR_SET_CHILD_SUBREAPER)",
            )
        } else {
            None
        }
    }

    fn live(&self, command: &Child<'_>, all: &HashMap<Pid, Process>) -> Vec<Process> {
        let mut roots = children_in(all);
        roots.retain(|child| self.is_of(command, *child));
        let roots: Vec<Pid> = roots.into_iter().collect();
        let mut live: Vec<Process> =
            roots.iter().filter_map(|root| all.get(root)).copied().collect();
        live.extend(Process::descendants_of(roots, all));
        live.retain(|process| !process.is_dead);
        live
    }

    /// Whether this child of rlock is the command or an orphan of it. Strangers leave orphans too.
    fn is_of(&self, command: &Child<'_>, child: Pid) -> bool {
        child == command.pid()
            || self.preexisting_children.is_empty()
            || !self.preexisting_children.contains(&child)
                && Process::was_given(child, self.token.as_str())
    }

    /// Reaps adopted children that have ended, but not the command. Once the command has ended,
    /// this leaves the children after it in the kernel's list. If the kernel does not hide the
    /// leader of the command's group, this leaves all of them.
    pub(super) fn reap_adopted(&mut self, command: &Child<'_>) {
        while let Ok(Some(ended)) = ended(libc::P_ALL, 0, libc::WNOWAIT) {
            if command.reserves(ended) || !self.reap(ended) {
                return;
            }
        }
    }

    /// Reaps all adopted children that have ended, even if the command has ended too. Otherwise, a
    /// chain of processes, each of which starts the next and exits, would use up the machine's
    /// process IDs. It would also slow the search for its last process, which might then escape.
    fn reap_all(&mut self, command: &Child<'_>) {
        for child in Process::children().unwrap_or_default() {
            if !command.reserves(child) {
                self.reap(child);
            }
        }
    }

    /// Reaps this child if it has ended, and returns whether it has.
    fn reap(&mut self, child: Pid) -> bool {
        if !matches!(ended(libc::P_PID, child.as_raw().unsigned_abs(), 0), Ok(Some(_))) {
            return false;
        }
        // From now on, the kernel may reuse the process ID. The orphans that the child left are now
        // children of rlock.
        for preexisting in &mut self.preexisting_children {
            if *preexisting == child {
                *preexisting = GONE;
            }
        }
        true
    }
}

/// The children of rlock, dead or alive.
fn children_in(all: &HashMap<Pid, Process>) -> HashSet<Pid> {
    let children = all.values().filter(|process| process.parent == getpid());
    children.map(|process| process.pid).collect()
}
