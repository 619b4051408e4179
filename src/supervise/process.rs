//! The processes of this machine or container, as /proc lists them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirEntry, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{Pid, getpid};
use rustix::process::{Signal, kill_process};

use crate::rules::{Instant, SystemCall, UserMessage};
use crate::system::call::errno;
use crate::system::poll::ready;

/// The limit on a search that nothing waits for.
pub(super) const SEARCH_TIME: Duration = Duration::from_secs(10);

/// How long rlock waits for killed processes to end. Without a limit, one that waits for a disk,
/// belongs to another user, or is restarted by such a process would keep rlock from its exit.
pub(super) const KILL_TIME: Duration = Duration::from_millis(1500);

/// The warning, after what rlock stops, if it cannot find what that has started.
const NONE_FOUND: &str = "cannot read /proc, so processes that it started may keep running";

/// One line of /proc/PID/stat.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    pub(super) group: Pid,
    pub(super) session: Pid,
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

    /// All processes, or those found until a moment; none if they cannot be found.
    fn all(until: Instant) -> impl Iterator<Item = Self> {
        Self::ids().take_while(move |_| Instant::now() < until).filter_map(Self::read)
    }

    /// The live descendants of these processes; none if they cannot be found.
    pub(super) fn below(roots: &[Pid], until: Instant) -> Vec<Self> {
        Kinship::look(until).map_or(Vec::new(), |kinship| kinship.below(roots, until))
    }

    /// The other live processes in the sessions and groups that these lead, which no unrelated
    /// process can join. This takes a scan of all processes.
    pub(super) fn led_by(leaders: &[Pid], until: Instant) -> Vec<Self> {
        let leaders: HashSet<Pid> = leaders.iter().copied().collect();
        let is_led = |process: &Self| {
            !leaders.contains(&process.pid)
                && [process.session, process.group].iter().any(|leader| leaders.contains(leader))
        };
        Self::all(until).filter(|process| is_led(process) && !process.is_dead).collect()
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

    /// Whether its environment contained this value when its program started, or does not show it:
    /// that of another user cannot be read, and that of a program that is starting is empty.
    pub(super) fn may_have_been_given(pid: Pid, value: &str) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has_value = |part: &[u8]| part == value.as_bytes();
        environment.is_empty() || environment.windows(value.len()).any(has_value)
    }
}

/// What to say, after what rlock stops, if it cannot find what that has started now.
pub(super) fn none_found() -> Option<String> {
    // What a search opens.
    let fault = match fs::read_dir("/proc/self/task") {
        Ok(_) if Process::can_be_found() => return None,
        Ok(_) => UserMessage::new(NONE_FOUND),
        Err(error) => SystemCall::Read.failed(errno(&error), NONE_FOUND.into()).1.fault,
    };
    Some(fault.or_remedy("mount /proc").to_string())
}

/// What to say if these processes did not end when they were killed; `None` if all did.
pub(super) fn not_killed(left: &[Process]) -> Option<String> {
    let describe = |Process { pid, .. }: &Process| {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let user = fs::metadata(format!("/proc/{pid}")).map_or(0, |folder| folder.uid());
        format!("{} (pid {pid}, uid {user})", String::from_utf8_lossy(name.trim_ascii_end()))
    };
    let some = Vec::from_iter(left.iter().take(5).map(describe)).join(", ");
    let problem = format!("cannot kill {some}; stop what still runs without the lock");
    (!left.is_empty()).then_some(problem)
}

/// Lets processes react to a signal before rlock looks at them again.
pub(super) fn pause() {
    // On an error this does not wait, and time still limits the rounds.
    let _ = ready([], Some(Instant::now() + Duration::from_millis(1)));
}

/// Which processes are the children of which.
pub(super) enum Kinship {
    /// The kernel lists the children of each process, so a search takes as long as the family is
    /// large, however many processes the host runs.
    Listed,
    /// From a scan of all processes, because the kernel was built without these lists.
    Scanned(HashMap<Pid, Vec<Pid>>),
}

impl Kinship {
    /// `None` if processes cannot be found. Scans until a moment.
    pub(super) fn look(until: Instant) -> Option<Self> {
        if !Process::can_be_found() {
            return None;
        }
        let is_listed = Path::new("/proc/thread-self/children").exists();
        Some(if is_listed { Self::Listed } else { Self::scan(until) })
    }

    fn scan(until: Instant) -> Self {
        let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for process in Process::all(until) {
            children.entry(process.parent).or_default().push(process.pid);
        }
        Self::Scanned(children)
    }

    /// The children of a process, dead or alive, the oldest first, or those read until a moment: a
    /// list may grow as fast as it is read. `None` if they cannot be read, for example because no
    /// descriptor is left.
    pub(super) fn children_of(&self, parent: Pid, until: Instant) -> Option<Vec<Pid>> {
        if let Self::Scanned(children) = self {
            return Some(children.get(&parent).cloned().unwrap_or_default());
        }
        let mut children = Vec::new();
        for thread in fs::read_dir(format!("/proc/{parent}/task")).ok()?.flatten() {
            match File::open(thread.path().join("children")) {
                Ok(list) => {
                    let ids = BufReader::new(list).split(b' ').map_while(Result::ok);
                    let ids = ids.take_while(|_| Instant::now() < until);
                    let parsed = ids.flat_map(|id| str::from_utf8(&id).ok()?.parse().ok());
                    children.extend(parsed.map(Pid::from_raw));
                }
                // The thread has ended.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => return None,
            }
        }
        Some(children)
    }

    /// The live descendants of these processes, each after its parent, but not rlock, which may be
    /// one of them. Looks until a moment.
    pub(super) fn below(&self, roots: &[Pid], until: Instant) -> Vec<Process> {
        let mut seen: HashSet<Pid> = roots.iter().copied().chain([getpid()]).collect();
        let (mut parents, mut found) = (roots.to_vec(), Vec::new());
        while let Some(parent) = parents.pop().filter(|_| Instant::now() < until) {
            for child in self.children_of(parent, until).unwrap_or_default() {
                if seen.insert(child) {
                    parents.push(child);
                    found.extend(Process::read(child).filter(|process| !process.is_dead));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

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

    #[test]
    fn the_kernels_lists_and_a_scan_name_the_same_descendants() {
        let script = "sleep 60 & (sleep 60 & setsid sh -c 'sleep 60 & echo READY; wait'; wait)";
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let stdout = BufReader::new(shell.stdout.take().unwrap());
        assert_eq!(stdout.lines().next().unwrap().unwrap(), "READY");
        let until = Instant::now() + Duration::from_secs(60);
        let root = Pid::from_raw(shell.id().cast_signed());
        let below = |kinship: Kinship| {
            let found = kinship.below(&[root], until).into_iter().map(|process| process.pid);
            let mut found = Vec::from_iter(found);
            found.sort_unstable();
            found
        };
        let [listed, scanned] = [Kinship::look(until).unwrap(), Kinship::scan(until)].map(below);
        for pid in &scanned {
            nix::sys::signal::kill(*pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert_eq!(scanned.len(), 5);
        assert_eq!(listed, scanned);
    }
}
