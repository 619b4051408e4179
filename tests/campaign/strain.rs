//! Evidence of a starved machine: when processors did not run a thread that was due, and for how
//! long the kernel says that any task waited.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::record::{Span, now};

/// How late a thread must wake up to be written down, in seconds.
const LATE: f64 = 0.01;
/// The pauses of the threads.
const PAUSE: Duration = Duration::from_millis(3);
/// The pauses between two looks at the kernel's own count.
const LOOK: Duration = Duration::from_millis(50);

/// The pauses between two looks at a process.
const GLANCE: Duration = Duration::from_millis(25);

/// How often to look for a keeper, which starts later than its script.
const LOOKS_FOR_KEEPER: u64 = 8;

/// What was seen of the machine.
#[derive(Clone, Debug, Default)]
pub struct Strain {
    /// When a thread did not run although it was due.
    pub gaps: Vec<Span>,
    /// A time, and for how many seconds tasks had waited for processors and disks until then.
    pub waits: Vec<(f64, f64)>,
}

impl Strain {
    /// The longest gap near this time, in seconds.
    pub fn longest_gap(&self, near: Span) -> f64 {
        let near = (near.0 - 0.1, near.1 + 0.1);
        let gaps = self.gaps.iter().filter(|gap| gap.0 <= near.1 && near.0 <= gap.1);
        gaps.map(|gap| gap.1 - gap.0).fold(0.0, f64::max)
    }

    /// For how many seconds of this time tasks waited for processors and disks.
    pub fn waiting(&self, during: Span) -> f64 {
        let mut waits = self.waits.iter().filter(|look| during.0 <= look.0 && look.0 <= during.1);
        match (waits.next(), waits.next_back()) {
            (Some(first), Some(last)) => last.1 - first.1,
            _ => 0.0,
        }
    }
}

/// Watches the machine until it is dropped.
pub struct Watcher {
    seen: Arc<Mutex<Strain>>,
    over: Arc<AtomicBool>,
}

impl Watcher {
    pub fn start() -> Self {
        let watcher = Self { seen: Arc::default(), over: Arc::default() };
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        for cpu in (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)) {
            watcher.spawn(Some(cpu), PAUSE, |seen, due, woken| {
                if woken - due > LATE {
                    seen.lock().unwrap().gaps.push((due, woken));
                }
            });
        }
        watcher.spawn(None, LOOK, |seen, _, woken| {
            // Not every kernel counts.
            if let Some(waited) = waited() {
                seen.lock().unwrap().waits.push((woken, waited));
            }
        });
        watcher
    }

    fn spawn(
        &self,
        cpu: Option<usize>,
        pause: Duration,
        look: impl Fn(&Mutex<Strain>, f64, f64) + Send + 'static,
    ) {
        let (seen, over) = (Arc::clone(&self.seen), Arc::clone(&self.over));
        std::thread::spawn(move || {
            if let Some(cpu) = cpu {
                let mut only = CpuSet::new();
                // If the system refuses, the thread watches whatever processor it runs on.
                let _ = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
            }
            while !over.load(Ordering::SeqCst) {
                let due = now() + pause.as_secs_f64();
                std::thread::sleep(pause);
                look(&seen, due, now());
            }
        });
    }

    /// What was seen after `from`. Forgets what was before.
    pub fn since(&self, from: f64) -> Strain {
        let mut seen = self.seen.lock().unwrap();
        seen.gaps.retain(|gap| gap.1 >= from);
        seen.waits.retain(|look| look.0 >= from);
        seen.gaps.sort_by(|a, b| a.0.total_cmp(&b.0));
        seen.clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// For how many seconds since its start some task of the system has waited for a processor, and for
/// how many for a disk.
fn waited() -> Option<f64> {
    let total = |resource: &str| {
        let text = fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
        text.lines().next()?.rsplit_once("total=")?.1.parse::<u64>().ok()
    };
    Some((total("cpu")? + total("io")?) as f64 / 1e6)
}

/// Writes down when a process could not run although it should have, until it ends. Each thread
/// counts, and so does the keeper of a script.
pub fn watch_process(pid: u32) -> JoinHandle<Vec<Span>> {
    std::thread::spawn(move || {
        let mut stuck = Vec::<Span>::new();
        let mut keeper = None;
        let mut before = (now(), BTreeMap::new());
        for look in 0_u64.. {
            let Some(mut seen) = threads(pid) else { break };
            if keeper.is_none() && look.is_multiple_of(LOOKS_FOR_KEEPER) {
                keeper = keeper_of(pid);
            }
            seen.extend(keeper.and_then(threads).unwrap_or_default());
            let at = now();
            let is_stuck = seen.iter().any(|(thread, seen)| {
                let was = before.1.get(thread).map_or(0.0, |was: &Seen| was.waited);
                seen.on_disk || seen.waited - was > (at - before.0) / 2.0
            });
            if is_stuck {
                match stuck.last_mut() {
                    Some(last) if last.1 >= before.0 => last.1 = at,
                    _ => stuck.push((before.0, at)),
                }
            }
            before = (at, seen);
            std::thread::sleep(GLANCE);
        }
        stuck
    })
}

/// The keeper of this script, if it has one.
fn keeper_of(script: u32) -> Option<u32> {
    let argument = format!("\0--while-pid\0{script}\0");
    let mut processes = fs::read_dir("/proc").ok()?.flatten();
    processes.find_map(|process| {
        let read = |name: &str| fs::read_to_string(process.path().join(name)).unwrap_or_default();
        let is_keeper = read("comm") == "rlock-keeper\n" && read("cmdline").contains(&argument);
        is_keeper.then(|| process.file_name().into_string().ok()?.parse().ok())?
    })
}

/// What a look at a thread shows.
struct Seen {
    /// It waits for a disk, for example to load a page of its program.
    on_disk: bool,
    /// For how many seconds it has waited for a processor.
    waited: f64,
}

/// The threads of a process; `None` if it has ended.
fn threads(pid: u32) -> Option<BTreeMap<String, Seen>> {
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let (Some(stat), Some(times)) = (read("stat"), read("schedstat")) else { continue };
        let waited = times.split(' ').nth(1).and_then(|nanos| nanos.parse::<f64>().ok());
        let seen = Seen { on_disk: stat.contains(") D "), waited: waited? / 1e9 };
        if !stat.contains(") Z ") {
            threads.insert(entry.file_name().into_string().ok()?, seen);
        }
    }
    (!threads.is_empty()).then_some(threads)
}
