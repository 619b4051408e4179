//! Evidence of a starved machine: when processors did not run a thread that was due, or a server or
//! worker waited for one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::time::{Span, now};

/// How late a thread must wake up to be written down, in seconds.
const LATE: f64 = 0.01;
/// The pauses of the threads.
const PAUSE: Duration = Duration::from_millis(3);
/// The pauses between two looks at a process.
const GLANCE: Duration = Duration::from_millis(25);

/// What was seen of the machine.
#[derive(Clone, Debug, Default)]
pub struct Strain {
    /// When a thread did not run although it was due.
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

/// Watches the machine until it is dropped.
pub struct Watcher {
    seen: Arc<Mutex<Strain>>,
    servers: Mutex<BTreeSet<u32>>,
    over: Arc<AtomicBool>,
}

impl Watcher {
    pub fn start() -> Self {
        let watcher =
            Self { seen: Arc::default(), servers: Mutex::default(), over: Arc::default() };
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        for cpu in (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)) {
            watcher.watch_processor(cpu);
        }
        watcher
    }

    fn watch_processor(&self, cpu: usize) {
        let (seen, over) = (Arc::clone(&self.seen), Arc::clone(&self.over));
        std::thread::spawn(move || {
            let mut only = CpuSet::new();
            // If the system refuses, the thread watches whatever processor it runs on.
            let _ = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
            while !over.load(Ordering::SeqCst) {
                let due = now() + PAUSE.as_secs_f64();
                std::thread::sleep(PAUSE);
                let woken = now();
                if woken - due > LATE {
                    seen.lock().unwrap().gaps.push((due, woken));
                }
            }
        });
    }

    /// Watches these servers too, until they end.
    pub fn watch_servers(&self, servers: Vec<u32>) {
        for server in servers {
            if !self.servers.lock().unwrap().insert(server) {
                continue;
            }
            let (seen, over) = (Arc::clone(&self.seen), Arc::clone(&self.over));
            std::thread::spawn(move || {
                let mut glances = Glances::default();
                // Its first thread answers all requests.
                let thread = format!("/proc/{server}/task/{server}");
                while !over.load(Ordering::SeqCst) {
                    let Some(look) = Seen::look(Path::new(&thread)) else { break };
                    let look = [(String::new(), look)].into();
                    if let Some(stuck) = glances.next(look) {
                        seen.lock().unwrap().stuck.push(stuck);
                    }
                    std::thread::sleep(GLANCE);
                }
            });
        }
    }

    /// What was seen after `from`. Forgets what was before.
    pub fn since(&self, from: f64) -> Strain {
        let mut seen = self.seen.lock().unwrap();
        seen.gaps.retain(|gap| gap.1 >= from);
        seen.stuck.retain(|stuck| stuck.1 >= from);
        seen.gaps.sort_by(|a, b| a.0.total_cmp(&b.0));
        seen.clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// Looks at the threads of a process, one after the other.
#[derive(Default)]
struct Glances {
    at: f64,
    threads: BTreeMap<String, Seen>,
}

impl Glances {
    /// When the process could not run, if it could not in most of the time since the last look. A
    /// wait for a processor counts only once it is over, so it may have begun earlier.
    fn next(&mut self, threads: BTreeMap<String, Seen>) -> Option<Span> {
        let at = now();
        let since = std::mem::replace(&mut self.at, at);
        let waits = threads.iter().map(|(thread, seen)| {
            let was = self.threads.get(thread).map_or(0.0, |was| was.waited);
            if seen.on_disk { at - since } else { seen.waited - was }
        });
        let longest = waits.fold(0.0, f64::max);
        self.threads = threads;
        (since > 0.0 && longest > (at - since) / 2.0).then_some((at - longest.max(at - since), at))
    }
}

/// Writes down when a process could not run although it should have, until it ends. Each thread
/// counts, and so do the processes that it starts and theirs, if `with_children`.
pub fn watch_process(pid: u32, with_children: bool) -> JoinHandle<Vec<Span>> {
    std::thread::spawn(move || {
        let (mut stuck, mut glances) = (Vec::new(), Glances::default());
        let mut family = BTreeSet::from([pid]);
        while let Some(mut seen) = threads(pid) {
            if with_children {
                // A keeper leaves the family tree, but is still watched.
                let new: Vec<u32> = family.iter().flat_map(|one| children(*one)).collect();
                family.extend(new);
                seen.extend(family.iter().filter_map(|one| threads(*one)).flatten());
            }
            stuck.extend(glances.next(seen));
            std::thread::sleep(GLANCE);
        }
        stuck
    })
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

impl Seen {
    /// `None` if the thread has ended.
    fn look(thread: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(thread.join(name)).ok();
        let (stat, times) = (read("stat")?, read("schedstat")?);
        let waited = times.split(' ').nth(1)?.parse::<f64>().ok()? / 1e9;
        (!stat.contains(") Z ")).then(|| Self { on_disk: stat.contains(") D "), waited })
    }
}

/// The threads of a process; `None` if it has ended.
fn threads(pid: u32) -> Option<BTreeMap<String, Seen>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let threads = entries.filter_map(|entry| {
        Some((entry.file_name().into_string().ok()?, Seen::look(&entry.path())?))
    });
    let threads: BTreeMap<String, Seen> = threads.collect();
    (!threads.is_empty()).then_some(threads)
}
