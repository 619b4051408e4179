//! The processes of this machine.

use std::collections::HashMap;
use std::fs;

use nix::unistd::{Pid, getpid};

/// One line of /proc/PID/stat.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub(super) parent: Pid,
    pub(super) group: Pid,
    pub(super) is_dead: bool,
}

impl Process {
    /// Those of this machine, or of this container.
    pub(super) fn all() -> HashMap<Pid, Self> {
        let Ok(entries) = fs::read_dir("/proc") else { return HashMap::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
            .filter_map(|pid| Some((pid, Self::read(pid)?)))
            .collect()
    }

    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before this may have anything in it, parentheses too.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        Some(Self { parent: number()?, group: number()?, is_dead: matches!(state, "Z" | "X") })
    }

    /// All that a process has started and that has not been given away since its parent ended; not
    /// we, who may have been given to it.
    pub(super) fn descendants_of(root: Pid) -> Vec<Pid> {
        let all = Self::all();
        let mut found = vec![root];
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            let children = all.iter().filter(|(_, process)| process.parent == parent);
            let children: Vec<Pid> = children.map(|(pid, _)| *pid).collect();
            found.extend(children.into_iter().filter(|child| *child != root && *child != getpid()));
            next += 1;
        }
        found.split_off(1)
    }
}
