//! The processes of this machine or container, as /proc lists them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirEntry};
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::unistd::{Pid, getpid};
use rustix::process::{PidfdFlags, pidfd_open};

/// How long rlock lets processes react to a signal before it looks at them again.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// One line of /proc/PID/stat.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub(super) parent: Pid,
    pub(super) group: Pid,
    pub(super) session: Pid,
    pub(super) is_dead: bool,
    /// Whether its main thread has stopped or ended; in the line of a thread, whether that thread
    /// has.
    is_halted: bool,
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
        Self::ids().filter_map(|pid| Some((pid, Self::read(pid)?))).collect()
    }

    /// The IDs of all processes; none if they cannot be found.
    fn ids() -> impl Iterator<Item = Pid> {
        let entries = Self::can_be_found().then(|| fs::read_dir("/proc").ok()).flatten();
        let entries = entries.into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
    }

    /// A pidfd of the process that has given itself this name.
    pub(super) fn named(name: &str) -> Option<OwnedFd> {
        let has_name = |pid: &Pid| {
            let found = fs::read(format!("/proc/{pid}/comm"));
            found.is_ok_and(|found| found.strip_suffix(b"\n") == Some(name.as_bytes()))
        };
        let pid = Self::ids().find(has_name)?;
        let opened = pidfd_open(rustix::process::Pid::from_raw(pid.as_raw())?, PidfdFlags::empty());
        // Its ID may have been reused before it was opened.
        opened.ok().filter(|_| has_name(&pid))
    }

    pub(super) fn read(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        // The program's name before this may contain any byte, even parentheses. The kernel cuts it
        // after 15 bytes, perhaps within a character.
        let stat = String::from_utf8_lossy(stat);
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        let (parent, group, session) = (number()?, number()?, number()?);
        // Skips 13 fields.
        let threads: u64 = fields.nth(13)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        // The state is that of the main thread, which may end before the others.
        let is_dead = matches!(state, "Z" | "X") && threads <= 1;
        let is_halted = matches!(state, "T" | "t" | "Z" | "X");
        Some(Self { parent, group, session, is_dead, is_halted, started })
    }

    /// Whether all threads of this process have stopped or ended.
    pub(super) fn has_halted(pid: Pid) -> bool {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let read = |thread: DirEntry| Self::parse(&fs::read(thread.path().join("stat")).ok()?);
        threads.filter_map(read).all(|thread| thread.is_halted)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A line whose fields after the state are 4, 5, 6 and so on, except the number of threads.
    fn stat(name: &[u8], state: char, threads: u32) -> Vec<u8> {
        let before: Vec<String> = (4..20).map(|field| field.to_string()).collect();
        let after = format!(") {state} {} {threads} 21 22 23\n", before.join(" "));
        [b"3 (", name, after.as_bytes()].concat()
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        for name in [&b"sh"[..], b"", b") Z 1 (", "\u{e9}".as_bytes(), b"cut \xc3", b"two\nlines"] {
            let process = Process::parse(&stat(name, 'S', 1)).unwrap();
            let ids = (process.parent, process.group, process.session);
            assert_eq!(ids, (Pid::from_raw(4), Pid::from_raw(5), Pid::from_raw(6)));
            assert_eq!((process.started, process.is_dead), (22, false));
        }
    }

    #[test]
    fn a_process_lives_until_its_last_thread_has_ended() {
        for (state, threads, is_dead) in [('Z', 1, true), ('X', 0, true), ('Z', 2, false)] {
            let process = Process::parse(&stat(b"sh", state, threads)).unwrap();
            assert_eq!(process.is_dead, is_dead, "{state} {threads}");
        }
    }
}
