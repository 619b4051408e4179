//! The processes of this machine or container, as /proc lists them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirEntry};
use std::mem::MaybeUninit;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{self, c_int};
use nix::unistd::{Pid, getpid};
use rustix::process::{Signal, kill_process};

/// How long rlock lets processes react to a signal before it looks at them again.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// The warning, after what rlock stops, if it cannot find what that has started.
pub(super) const NONE_FOUND: &str =
    "cannot read /proc, so processes that it started may keep running; mount /proc";

/// One line of /proc/PID/stat.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    pub(super) group: Pid,
    session: Pid,
    pub(super) is_dead: bool,
    /// Whether its main thread has stopped or ended; in the line of a thread, whether that thread
    /// has.
    is_halted: bool,
    /// In clock ticks since boot. Together with the process ID it identifies a process.
    started: u64,
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
        Self::ids().filter_map(Self::read).map(|process| (process.pid, process)).collect()
    }

    /// The IDs of all processes; none if they cannot be found.
    fn ids() -> impl Iterator<Item = Pid> {
        let entries = Self::can_be_found().then(|| fs::read_dir("/proc").ok()).flatten();
        let entries = entries.into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
    }

    pub(super) fn read(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        // The program's name before this may contain any byte, even parentheses. The kernel cuts it
        // after 15 bytes, perhaps within a character.
        let stat = String::from_utf8_lossy(stat);
        let (before, after) = stat.rsplit_once(')')?;
        let pid = Pid::from_raw(before.split(' ').next()?.parse().ok()?);
        let mut fields = after.split_whitespace();
        let state = fields.next()?;
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        let (parent, group, session) = (number()?, number()?, number()?);
        // Skips 13 fields.
        let threads: u64 = fields.nth(13)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        // The state is that of the main thread, which may end before the others.
        let is_dead = matches!(state, "Z" | "X") && threads <= 1;
        let is_halted = matches!(state, "T" | "t" | "Z" | "X");
        Some(Self { pid, parent, group, session, is_dead, is_halted, started })
    }

    /// Whether the process has ended since it was found.
    pub(super) fn has_ended(&self) -> bool {
        Self::read(self.pid).is_none_or(|now| now.is_dead || now.started != self.started)
    }

    /// Sends a signal to the process that was found, not to another that has its ID now.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid.as_raw())
            && !self.has_ended()
        {
            let _ = kill_process(pid, signal);
        }
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
    pub(super) fn descendants_of(roots: Vec<Pid>, all: &HashMap<Pid, Self>) -> Vec<Self> {
        let mut below: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for process in all.values() {
            below.entry(process.parent).or_default().push(process.pid);
            below.entry(process.session).or_default().push(process.pid);
        }
        let mut seen: HashSet<Pid> = roots.iter().copied().chain([getpid()]).collect();
        let (mut parents, mut found) = (roots, Vec::new());
        while let Some(parent) = parents.pop() {
            for child in below.remove(&parent).unwrap_or_default() {
                if seen.insert(child) {
                    parents.push(child);
                    found.extend(all.get(&child).copied());
                }
            }
        }
        found
    }
}

/// A child that has ended. This does not use waitid and waitpid of nix, which return an error for
/// an end by a real-time signal.
pub(super) fn ended(
    kind: libc::idtype_t,
    id: libc::id_t,
    flags: c_int,
) -> nix::Result<Option<Pid>> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | flags;
    // SAFETY: the pointer is valid for writes of this structure.
    let waited = unsafe { libc::waitid(kind, id, information.as_mut_ptr(), flags) };
    Errno::result(waited)?;
    // SAFETY: zeroes are a valid siginfo_t, and waitid has filled in the fields of SIGCHLD, or left
    // it as it was if no child has ended.
    let pid = unsafe { information.assume_init().si_pid() };
    Ok((pid != 0).then_some(Pid::from_raw(pid)))
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
            let ids = [process.pid, process.parent, process.group, process.session];
            assert_eq!(ids, [3, 4, 5, 6].map(Pid::from_raw));
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
