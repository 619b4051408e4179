//! The processes of this machine.

use std::collections::{HashMap, HashSet};
use std::fs;

use nix::unistd::{Pid, getpid};

/// How often to look for processes at most. New ones may be started while the old ones are found;
/// each of these is started by one that has been signalled already, so this is far more than it
/// takes.
pub(super) const ROUNDS: u32 = 100;

/// One line of /proc/PID/stat.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub(super) parent: Pid,
    pub(super) group: Pid,
    pub(super) session: Pid,
    pub(super) is_dead: bool,
    /// In ticks since boot: with its number, this tells a process from all others.
    pub(super) started: u64,
}

impl Process {
    /// Is there a /proc, and the one that has our own processes? That of another container, say,
    /// has other numbers.
    pub(super) fn can_be_found() -> bool {
        fs::read_link("/proc/self")
            .is_ok_and(|itself| itself.as_os_str() == getpid().to_string().as_str())
    }

    /// Those of this machine, or of this container; none if they cannot be found.
    pub(super) fn all() -> HashMap<Pid, Self> {
        if !Self::can_be_found() {
            return HashMap::new();
        }
        let Ok(entries) = fs::read_dir("/proc") else { return HashMap::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
            .filter_map(|pid| Some((pid, Self::read(pid)?)))
            .collect()
    }

    pub(super) fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before this may have anything in it, parentheses too.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        let (parent, group, session) = (number()?, number()?, number()?);
        // 15 fields are of no interest here.
        let started = fields.nth(15)?.parse().ok()?;
        let is_dead = matches!(state, "Z" | "X");
        Some(Self { parent, group, session, is_dead, started })
    }

    /// Our own children, as far as the kernel has a list of them. That takes a fraction of the time
    /// that it takes to look at all processes.
    pub(super) fn children() -> Option<Vec<Pid>> {
        if !Self::can_be_found() {
            return None;
        }
        let mut children = Vec::new();
        for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
            let list = fs::read_to_string(thread.path().join("children")).ok()?;
            let numbers = list.split_whitespace().filter_map(|number| number.parse().ok());
            children.extend(numbers.map(Pid::from_raw));
        }
        Some(children)
    }

    /// Did it get this in its environment when its program was started?
    pub(super) fn was_given(pid: Pid, value: &str) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(value.len()).any(|part| part == value.as_bytes())
    }

    /// All that these have started, and those that have started these, each after its parent; not
    /// we, who may have been given to it. One whose parent has ended belongs to init, and is found
    /// only in a session that is led by one of the others: nobody else can be in there.
    pub(super) fn descendants_of(roots: Vec<Pid>) -> Vec<(Pid, Self)> {
        let all = Self::all();
        let mut below: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for (pid, process) in &all {
            below.entry(process.parent).or_default().push(*pid);
            below.entry(process.session).or_default().push(*pid);
        }
        let mut seen: HashSet<Pid> = roots.iter().copied().chain([getpid()]).collect();
        let (mut parents, mut found) = (roots, Vec::new());
        while let Some(parent) = parents.pop() {
            for child in below.remove(&parent).unwrap_or_default() {
                if seen.insert(child) {
                    parents.push(child);
                    found.extend(all.get(&child).map(|process| (child, *process)));
                }
            }
        }
        found
    }
}
