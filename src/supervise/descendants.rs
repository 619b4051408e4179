//! Processes that the command has started and that signals to it do not reach: daemons, sessions of
//! their own. While rlock runs they are given to it when their parents end, so that it can find them.

use std::collections::HashMap;
use std::fs;
use std::io;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::{Pid, getpid};

use super::child::Child;

/// New ones may be started while the old ones are found; each of these is started by one that has
/// been signalled already, so this is far more than it takes.
const ROUNDS: u32 = 100;

/// From now on orphans among our descendants become our children, not init's.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Sends a signal to all descendants that a signal to the command does not reach.
pub(super) fn signal_all(command: &Child, signal: Signal) {
    for process in beyond(command) {
        // Found a moment ago. It cannot have been replaced by a stranger: adopted children of ours
        // keep their number until we reap them, and others would have had to end, be reaped by
        // their parents and have all other numbers used up since.
        let _ = kill(process, signal);
    }
}

/// Ends the same, and those that they start meanwhile.
pub(super) fn kill_all(command: &Child) {
    for _ in 0..ROUNDS {
        let found = beyond(command);
        for process in &found {
            let _ = kill(*process, Signal::SIGKILL);
        }
        if found.is_empty() {
            return;
        }
        reap_adopted(command);
    }
}

/// Reaps adopted children that have ended, but not the command itself.
pub(super) fn reap_adopted(command: &Child) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Some(ended) = waitid(Id::All, flags).ok().and_then(|status| status.pid()) {
        // Once the command has ended, what comes behind it can wait for our own end.
        if ended == command.pid() || waitpid(ended, Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}

/// One line of /proc/PID/stat.
struct Process {
    parent: Pid,
    group: Pid,
    is_dead: bool,
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before this may have anything in it, parentheses too.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        Some(Self { parent: number()?, group: number()?, is_dead: matches!(state, "Z" | "X") })
    }
}

/// Live descendants of ours that a signal to the command does not reach.
fn beyond(command: &Child) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let all: HashMap<Pid, Process> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter_map(|pid| Some((pid, Process::read(pid)?)))
        .collect();
    let is_ours = |pid: Pid| {
        let mut ancestor = pid;
        // A chain of parents is never longer than there are processes, even if it was read while
        // it changed.
        for _ in 0..all.len() {
            match all.get(&ancestor) {
                Some(process) if process.parent == getpid() => return true,
                Some(process) => ancestor = process.parent,
                None => return false,
            }
        }
        false
    };
    all.iter()
        .filter(|(pid, process)| !process.is_dead && !command.includes(**pid, process.group))
        .map(|(&pid, _)| pid)
        .filter(|&pid| is_ours(pid))
        .collect()
}
