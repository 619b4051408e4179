//! What the command has started, wherever it has gone: daemons, sessions of their own. While rlock
//! runs they are given to it when their parents end, so that it can find them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;

use nix::libc::{self, c_int};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

use super::child::Child;
use super::process::{Process, ROUNDS};
use crate::lock::Token;

/// No process has this number.
const GONE: Pid = Pid::from_raw(0);

/// How to find them.
pub(super) struct Descendants {
    /// Children that this process had before it became rlock: `exec` in a shell keeps those.
    strangers: Vec<Pid>,
    /// What the command's environment has in it, and that of nobody who was there before.
    token: Token,
}

impl Descendants {
    /// From now on orphans among our descendants become our children, not init's. To be called
    /// before the command is started.
    pub(super) fn adopt(token: &Token) -> io::Result<Self> {
        nix::sys::prctl::set_child_subreaper(true)?;
        let mut strangers = Vec::new();
        if has_children() {
            let children = Process::all().into_iter().filter(|(_, one)| one.parent == getpid());
            strangers.extend(children.map(|(pid, _)| pid));
        }
        Ok(Self { strangers, token: token.clone() })
    }

    /// Sends a signal to all that a signal to the command does not reach.
    pub(super) fn signal_all(&self, command: &Child, signal: Signal) {
        for process in self.beyond(command, &Process::all()) {
            // Found a moment ago. It cannot have been replaced by a stranger: adopted children of
            // ours keep their number until we reap them, and others would have had to end, be
            // reaped by their parents and have all other numbers used up since.
            let _ = kill(process, signal);
        }
    }

    /// Ends the same, and those that they start meanwhile.
    pub(super) fn kill_all(&mut self, command: &Child) {
        let mut before = None;
        for _ in 0..ROUNDS {
            // One that starts another and ends at once has ended when all have been looked at.
            self.kill_adopted(command);
            let all = Process::all();
            let found = self.beyond(command, &all);
            for process in &found {
                let _ = kill(*process, Signal::SIGKILL);
            }
            let children = found.is_empty().then(|| children_in(&all));
            if children.is_some() && children == before {
                return;
            }
            if children.is_none() {
                self.reap_adopted(command);
            }
            before = children;
        }
    }

    fn kill_adopted(&self, command: &Child) {
        // Not reaped yet, each still has its number.
        for child in Process::children().unwrap_or_default() {
            if child != command.pid() && self.is_of(command, child) {
                let _ = kill(child, Signal::SIGKILL);
            }
        }
    }

    /// Is nothing left, not even in the command's group?
    ///
    /// While all processes are looked at, one may start another and end. Then it has become a child
    /// of ours or has left one behind, and we have not reaped any: nothing has been missed only if
    /// a second look finds the same children.
    pub(super) fn are_gone(&self, command: &Child) -> bool {
        let first = Process::all();
        if !self.live(command, &first).is_empty() {
            return false;
        }
        let second = Process::all();
        self.live(command, &second).is_empty() && children_in(&first) == children_in(&second)
    }

    /// Can those be found that a signal to the command does not reach?
    pub(super) fn can_be_found() -> bool {
        Process::can_be_found()
    }

    fn beyond(&self, command: &Child, all: &HashMap<Pid, Process>) -> Vec<Pid> {
        let mut found = self.live(command, all);
        found.retain(|(pid, process)| !command.includes(*pid, process.group));
        found.into_iter().map(|(pid, _)| pid).collect()
    }

    fn live(&self, command: &Child, all: &HashMap<Pid, Process>) -> Vec<(Pid, Process)> {
        let is_ours = |pid: Pid| {
            let mut ancestor = pid;
            // A chain of parents is never longer than there are processes, even if it was read
            // while it changed.
            for _ in 0..all.len() {
                match all.get(&ancestor) {
                    Some(process) if process.parent == getpid() => {
                        return self.is_of(command, ancestor);
                    }
                    Some(process) => ancestor = process.parent,
                    None => return false,
                }
            }
            false
        };
        all.iter()
            .filter(|(pid, process)| !process.is_dead && is_ours(**pid))
            .map(|(pid, process)| (*pid, *process))
            .collect()
    }

    /// Is this child of ours the command, or an orphan of the command's? Strangers have orphans too.
    fn is_of(&self, command: &Child, child: Pid) -> bool {
        child == command.pid()
            || self.strangers.is_empty()
            || !self.strangers.contains(&child) && Process::was_given(child, self.token.as_str())
    }

    /// Reaps adopted children that have ended, but not the command itself.
    pub(super) fn reap_adopted(&mut self, command: &Child) {
        while let Ok(Some(ended)) = ended(libc::P_ALL, 0, libc::WNOWAIT) {
            // Once the command has ended, what comes behind it can wait for our own end.
            if ended == command.pid() || reap(ended).is_err() {
                return;
            }
            // Its number may be another's from now on. But its orphans are here.
            for stranger in &mut self.strangers {
                if *stranger == ended {
                    *stranger = GONE;
                }
            }
        }
    }
}

/// Ours, dead or alive.
fn children_in(all: &HashMap<Pid, Process>) -> HashSet<Pid> {
    let children = all.iter().filter(|(_, process)| process.parent == getpid());
    children.map(|(pid, _)| *pid).collect()
}

fn has_children() -> bool {
    // Any answer but "there are none", ECHILD.
    ended(libc::P_ALL, 0, libc::WNOWAIT).is_ok()
}

fn reap(child: Pid) -> nix::Result<Option<Pid>> {
    ended(libc::P_PID, child.as_raw().unsigned_abs(), 0)
}

/// A child that has ended. Not nix's waitid and waitpid, which take an end by a real-time signal for
/// an error.
fn ended(kind: libc::idtype_t, id: libc::id_t, flags: c_int) -> nix::Result<Option<Pid>> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | flags;
    // SAFETY: the pointer is valid for the structure that is written.
    let waited = unsafe { libc::waitid(kind, id, information.as_mut_ptr(), flags) };
    nix::errno::Errno::result(waited)?;
    // SAFETY: zeroes are a valid siginfo_t, and waitid has filled in the fields of SIGCHLD, or left
    // it as it was if no child has ended.
    let pid = unsafe { information.assume_init().si_pid() };
    Ok((pid != 0).then_some(Pid::from_raw(pid)))
}
