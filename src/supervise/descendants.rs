//! What the command has started, wherever it has gone: daemons, sessions of their own. While rlock
//! runs they are given to it when their parents end, so that it can find them.

use std::io;
use std::mem::MaybeUninit;

use nix::libc::{self, c_int};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

use super::child::Child;
use super::process::Process;

/// New ones may be started while the old ones are found; each of these is started by one that has
/// been signalled already, so this is far more than it takes.
const ROUNDS: u32 = 100;

/// How to find them.
pub(super) struct Descendants {
    /// Children that this process had before it became rlock: `exec` in a shell keeps those.
    strangers: Vec<Pid>,
}

impl Descendants {
    /// From now on orphans among our descendants become our children, not init's. To be called
    /// before the command is started.
    pub(super) fn adopt() -> io::Result<Self> {
        nix::sys::prctl::set_child_subreaper(true)?;
        let mut strangers = Vec::new();
        if has_children() {
            let children = Process::all().into_iter().filter(|(_, one)| one.parent == getpid());
            strangers.extend(children.map(|(pid, _)| pid));
        }
        Ok(Self { strangers })
    }

    /// Sends a signal to all that a signal to the command does not reach.
    pub(super) fn signal_all(&self, command: &Child, signal: Signal) {
        for process in self.beyond(command) {
            // Found a moment ago. It cannot have been replaced by a stranger: adopted children of
            // ours keep their number until we reap them, and others would have had to end, be
            // reaped by their parents and have all other numbers used up since.
            let _ = kill(process, signal);
        }
    }

    /// Ends the same, and those that they start meanwhile.
    pub(super) fn kill_all(&self, command: &Child) {
        for _ in 0..ROUNDS {
            let found = self.beyond(command);
            for process in &found {
                let _ = kill(*process, Signal::SIGKILL);
            }
            if found.is_empty() {
                return;
            }
            reap_adopted(command);
        }
    }

    /// Is nothing left, not even in the command's group?
    pub(super) fn are_gone(&self) -> bool {
        self.live().is_empty()
    }

    fn beyond(&self, command: &Child) -> Vec<Pid> {
        let mut found = self.live();
        found.retain(|(pid, process)| !command.includes(*pid, process.group));
        found.into_iter().map(|(pid, _)| pid).collect()
    }

    fn live(&self) -> Vec<(Pid, Process)> {
        let all = Process::all();
        let is_ours = |pid: Pid| {
            let mut ancestor = pid;
            // A chain of parents is never longer than there are processes, even if it was read
            // while it changed.
            for _ in 0..all.len() {
                match all.get(&ancestor) {
                    _ if self.strangers.contains(&ancestor) => return false,
                    Some(process) if process.parent == getpid() => return true,
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
}

/// Reaps adopted children that have ended, but not the command itself.
pub(super) fn reap_adopted(command: &Child) {
    while let Ok(Some(ended)) = ended(libc::P_ALL, 0, libc::WNOWAIT) {
        // Once the command has ended, what comes behind it can wait for our own end.
        if ended == command.pid() || reap(ended).is_err() {
            return;
        }
    }
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
