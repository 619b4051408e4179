//! Evidence of a starved machine: when processors did not run a thread that was due, a server or
//! worker waited for one, or a process was slow to start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::time::{Span, now};

/// How late a thread must wake up to be written down, in seconds.
const LATE: f64 = 0.01;
/// How long the start and the end of a process must take to be written down, in seconds.
const LONG_START: f64 = 0.05;
/// The pauses of the threads.
const PAUSE: Duration = Duration::from_millis(3);
/// The pauses between two looks at a process.
const GLANCE: Duration = Duration::from_millis(25);

/// What was seen of the machine.
#[derive(Clone, Debug, Default)]
pub struct Strain {
    /// When a thread did not run although it was due, or a process did not start.
    pub gaps: Vec<Span>,
    /// When a server could not run although it should have.
    pub stuck: Vec<Span>,
}

impl Strain {
    /// The longest gap near this time, in seconds.
    pub fn longest_gap(&self, near: Span) -> f64 {
        let near = (near.0 - 0.1, near.1 + 0.1);
        let gaps = self.gaps.iter().filter(|gap| gap.0 <= near.1 && near.0 <= gap.1);
        gaps.map(|gap| gap.1 - gap.0).fold(0.0, f64::max)
    }

    /// For how many seconds of this time the machine did not run what was due, a worker that was
    /// stuck at these times included.
    pub fn starved(&self, during: Span, stuck: &[Span]) -> f64 {
        let spans = self.gaps.iter().chain(&self.stuck).chain(stuck);
        let clipped = spans.map(|span| (span.0.max(during.0), span.1.min(during.1)));
        let mut spans: Vec<Span> = clipped.filter(|span| span.0 < span.1).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut seconds, mut until) = (0.0, during.0);
        for (from, to) in spans {
            seconds += (to - from.max(until)).max(0.0);
            until = until.max(to);
        }
        seconds
    }
}

/// Watches the processors and the servers until it is told to end.
#[derive(Default)]
pub struct Watcher {
    over: Arc<AtomicBool>,
    processors: Vec<JoinHandle<Vec<Span>>>,
    servers: BTreeMap<u32, JoinHandle<Vec<Span>>>,
}

impl Watcher {
    pub fn start() -> Self {
        let mut watcher = Self::default();
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        for cpu in (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)) {
            let over = Arc::clone(&watcher.over);
            watcher.processors.push(std::thread::spawn(move || watch_processor(cpu, &over)));
        }
        let over = Arc::clone(&watcher.over);
        watcher.processors.push(std::thread::spawn(move || watch_starts(&over)));
        watcher
    }

    /// Watches these servers too.
    pub fn watch_servers(&mut self, servers: Vec<u32>) {
        for server in servers {
            let over = &self.over;
            let watch = || watch_process(server, Arc::clone(over));
            self.servers.entry(server).or_insert_with(watch);
        }
    }

    pub fn end(self) -> Strain {
        self.over.store(true, Ordering::SeqCst);
        let joined = |watch: JoinHandle<Vec<Span>>| watch.join().unwrap();
        Strain {
            gaps: self.processors.into_iter().flat_map(joined).collect(),
            stuck: self.servers.into_values().flat_map(joined).collect(),
        }
    }
}

fn watch_processor(cpu: usize, over: &AtomicBool) -> Vec<Span> {
    let mut only = CpuSet::new();
    // If the system refuses, the thread watches whatever processor it runs on.
    let _ = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
    let mut gaps = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let due = now() + PAUSE.as_secs_f64();
        std::thread::sleep(PAUSE);
        let woken = now();
        if woken - due > LATE {
            gaps.push((due, woken));
        }
    }
    gaps
}

/// Writes down when the system needed long to start a process: its locks may be taken although the
/// processors are free, for example in a storm of new processes.
fn watch_starts(over: &AtomicBool) -> Vec<Span> {
    let mut gaps = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let since = now();
        let _ = Command::new("true").status();
        let ended = now();
        if ended - since > LONG_START {
            gaps.push((since, ended));
        }
        std::thread::sleep(GLANCE);
    }
    gaps
}

/// Writes down when a process could not run although it should have, until it ends. Each thread
/// counts, and so do the processes that it starts and theirs.
pub fn watch_process(pid: u32, over: Arc<AtomicBool>) -> JoinHandle<Vec<Span>> {
    std::thread::spawn(move || {
        let mut stuck = Vec::new();
        let (mut family, mut known) = (vec![pid], BTreeSet::new());
        // Of the last look.
        let (mut since, mut last) = (None, BTreeMap::new());
        while !over.load(Ordering::SeqCst) && !threads(pid).is_empty() {
            // A keeper leaves the family tree, but is still watched.
            let new: Vec<u32> = family.iter().flat_map(|one| children(*one)).collect();
            // The storm of a command waits for others, which says nothing of rlock.
            let new = new.into_iter().filter(|child| known.insert(*child));
            family.extend(new.filter(|child| name_of(*child) != STORM));
            let seen: BTreeMap<PathBuf, Seen> =
                family.iter().flat_map(|one| threads(*one)).collect();
            let at = now();
            let passed = since.map_or(f64::INFINITY, |since| at - since);
            // A wait for a processor counts only once it is over, so it may have begun earlier.
            let waits = seen.iter().map(|(thread, seen)| {
                let was = last.get(thread).map_or(0.0, |was: &Seen| was.waited);
                if seen.on_disk { passed } else { seen.waited - was }
            });
            let longest = waits.fold(0.0, f64::max);
            if since.is_some() && longest > passed / 2.0 {
                stuck.push((at - longest.max(passed), at));
            }
            (since, last) = (Some(at), seen);
            std::thread::sleep(GLANCE);
        }
        stuck
    })
}

/// The name of the processes that a command starts besides its work.
const STORM: &str = "storm";

/// The name of a process's program.
pub fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    listed.unwrap_or_default().split(' ').filter_map(|child| child.parse().ok()).collect()
}

/// What a look at a thread shows.
struct Seen {
    /// It waits for a disk, for example to load a page of its program.
    on_disk: bool,
    /// For how many seconds it has waited for a processor.
    waited: f64,
}

/// The threads of a process by their files; none if it has ended.
fn threads(pid: u32) -> Vec<(PathBuf, Seen)> {
    let files = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads = files.filter_map(|file| {
        let read = |name: &str| fs::read_to_string(file.path().join(name)).ok();
        let (stat, times) = (read("stat")?, read("schedstat")?);
        let waited = times.split(' ').nth(1)?.parse::<f64>().ok()? / 1e9;
        let seen = Seen { on_disk: stat.contains(") D "), waited };
        (!stat.contains(") Z ")).then(|| (file.path(), seen))
    });
    threads.collect()
}
