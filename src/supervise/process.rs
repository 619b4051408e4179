//! The processes of this machine or container, as /proc lists them.

use std::collections::{HashMap, HashSet};
use std::fs;

use nix::unistd::{Pid, getpid};

/// The limit on scans for processes. A scan may miss processes that are started during it, but only
/// those whose parent has been signaled already, so far fewer scans suffice.
pub(super) const ROUNDS: u32 = 100;

/// One line of /proc/PID/stat.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub(super) parent: Pid,
    pub(super) group: Pid,
    pub(super) session: Pid,
    pub(super) is_dead: bool,
    /// In clock ticks since boot. Together with the process ID it identifies a process.
    pub(super) started: u64,
}

impl Process {
    /// Whether there is a /proc and it lists the processes that rlock sees. The /proc of another
    /// container has different process IDs.
    pub(super) fn can_be_found() -> bool {
        fs::read_link("/proc/self")
            .is_ok_and(|itself| itself.as_os_str() == getpid().to_string().as_str())
    }

    /// All processes; none if they cannot be found.
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
        // The program's name before this may contain any character, even parentheses.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        let (parent, group, session) = (number()?, number()?, number()?);
        // Skips 15 fields.
        let started = fields.nth(15)?.parse().ok()?;
        let is_dead = matches!(state, "Z" | "X");
        Some(Self { parent, group, session, is_dead, started })
    }

    /// The children of rlock, if the kernel keeps a list of them. This takes a fraction of the time
    /// of a scan of all processes.
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

    /// Whether its environment contained this value when its program started.
    pub(super) fn was_given(pid: Pid, value: &str) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(value.len()).any(|part| part == value.as_bytes())
    }

    /// All descendants of these processes, each after its parent, but not rlock, which may be one
    /// of them. A process whose parent has ended is a child of init. It is found only if one of the
    /// others leads its session, which no unrelated process can join.
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
