//! A worker: rlock with a command that writes down when it ran, and uses two counters.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::plan::{Clocks, Mode, Plan, Storm, Work};
use super::record::{End, Worker};
use super::strain::{name_of, watch_process};
use super::time::{Span, now};
use crate::support::clock::Clock;
use crate::support::limit::Process;
use crate::support::{Finished, binary, run, without_settings};

/// Writes down when it runs, and adds one to a counter.
const COMMAND: &str = include_str!("command.pl");

/// A script that acquires the lock itself and then becomes the command.
const SCRIPT: &str = r#"
    program=$1 options=$2; shift 2
    lock=$("$program" acquire --shell --while-pid $$ $options) || exit
    eval "$lock"
    exec perl -e "$COMMAND" "$@"
"#;

/// The variable that tells whose process it is.
const MARK: &str = "CAMPAIGN_WORKER";

/// What a line of a storm of output begins with, and how long the reader stalls after each. A pipe
/// holds some tens of them.
const NOISE: &str = "noise";
const STALL: Duration = Duration::from_millis(200);

/// How far the time of day of some clients is ahead.
const HOURS: Duration = Duration::from_secs(5 * 3_600);

/// What starts a program with a clock since boot that is a day ahead.
const SHIFTED: [&str; 4] = ["unshare", "--time", "--boottime", "86400"];

/// Whether the system permits that.
static MAY_SHIFT: LazyLock<bool> = LazyLock::new(|| {
    let tried = run(Command::new(SHIFTED[0]).args(&SHIFTED[1..]).arg("true"));
    if !tried.status.success() {
        println!("no client has another clock since boot: {}", tried.err());
    }
    tried.status.success()
});

/// A worker that was started.
pub struct Started {
    pid: Pid,
    /// What the environment of its processes contains, also of those that have left it.
    mark: String,
    pub started: f64,
    pub stops: Vec<Span>,
    told: Arc<Mutex<Vec<(f64, String)>>>,
    end: JoinHandle<(f64, End)>,
    stuck: JoinHandle<Vec<Span>>,
}

impl Started {
    /// Starts the worker with this number, on a lock at this URL.
    pub fn start(plan: &Plan, number: usize, lock: &str, url: &str, directory: &Path) -> Self {
        let work = &plan.works[number];
        let mut options = format!("--ttl {}ms", work.ttl.as_millis());
        options += &match work.mode {
            Mode::Exclusive => String::new(),
            Mode::Shared => " --shared".into(),
            Mode::Slots(count) => format!(" --slots {count}"),
            Mode::Reentrant(owner) => format!(" --reentrant --owner o{owner}"),
        };
        options += &match work.limit {
            None => String::new(),
            Some(Duration::ZERO) => " -n".into(),
            Some(limit) => format!(" -w {}ms", limit.as_millis()),
        };
        if let Some(at_least) = work.at_least {
            options += &format!(" --at-least {}ms", at_least.as_millis());
        }
        if plan.min_replicas > 0 {
            options += &format!(" --min-replicas {}", plan.min_replicas);
        }
        options += &format!(" {lock}");
        let mut line = Vec::new();
        if work.clocks == Clocks::Boot && *MAY_SHIFT {
            line.extend(SHIFTED);
        }
        if work.is_script {
            line.extend(["sh", "-c", SCRIPT, "sh", binary(), &options]);
        } else {
            line.extend([binary(), "exec"]);
            line.extend(options.split(' '));
            line.extend(["perl", "-e", COMMAND]);
        }
        let mut command = without_settings(line[0]);
        command.args(&line[1..]).env("COMMAND", COMMAND);
        command.arg(directory).arg(number.to_string()).arg(work.lasting.as_secs_f64().to_string());
        command.arg(if work.stubborn { "1" } else { "" });
        command.arg(if work.mode == Mode::Exclusive { "1" } else { "" });
        command.arg(work.storm.map_or_else(String::new, Storm::name));
        let mark = format!("{}/{number}", directory.display());
        command.env(MARK, &mark);
        if work.clocks == Clocks::Wall {
            let file = directory.join(format!("clock-{number}"));
            Clock::ahead(HOURS, file).give_to(&mut command);
        }
        command.env("RLOCK_URL", url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let started = now();
        let mut process = Process::start(&mut command);
        let process_id = process.id();
        let pid = Pid::from_raw(process_id.cast_signed());
        let told = Arc::<Mutex<Vec<_>>>::default();
        let (mut stderr, telling) = (process.stderr(), Arc::clone(&told));
        std::thread::spawn(move || {
            while let Some(line) = stderr.line("a message") {
                if line.starts_with(NOISE) {
                    std::thread::sleep(STALL);
                    continue;
                }
                telling.lock().unwrap().push((now(), line));
            }
        });
        let end = std::thread::spawn(move || {
            let status = process.wait().unwrap();
            let end = status.code().map(End::Status);
            (now(), end.unwrap_or_else(|| End::Signal(status.signal().unwrap())))
        });
        let stuck = watch_process(process_id, Arc::default());
        Self { pid, mark, started, stops: Vec::new(), told, end, stuck }
    }

    /// Signals the worker unless it has ended.
    pub fn signal(&self, signal: Signal) {
        if !self.has_ended() {
            let _ = kill(self.pid, signal);
        }
    }

    /// Signals all its processes, as if its host was suspended or resumed: its command before `rlock`
    /// goes on, and after `rlock` has stopped, because that would follow it.
    pub fn signal_all(&self, signal: Signal) {
        let mark = format!("{MARK}={}\0", self.mark);
        let is_own = |process: &u32| {
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|text| text == mark.as_bytes())
        };
        let names = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = names.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let (first, others): (Vec<u32>, Vec<u32>) = all
            .filter(is_own)
            .partition(|process| (name_of(*process) == "rlock") == (signal == Signal::SIGSTOP));
        for process in first.into_iter().chain(others) {
            let _ = kill(Pid::from_raw(process.cast_signed()), signal);
        }
    }

    pub fn has_ended(&self) -> bool {
        self.end.is_finished()
    }

    /// Waits for the end, and returns what happened without what the command wrote down.
    pub fn end(self, work: &Work) -> Worker {
        let (ended, end) = self.end.join().unwrap_or_else(|_| (now(), End::Never));
        let told = std::mem::take(&mut *self.told.lock().unwrap());
        Worker {
            work: work.clone(),
            started: self.started,
            queued: queued(&told),
            run: None,
            ended,
            end,
            stops: self.stops,
            stuck: self.stuck.join().unwrap(),
            told,
        }
    }
}

/// When it told that it waits in the queue.
fn queued(told: &[(f64, String)]) -> Option<f64> {
    told.iter().find(|(_, line)| line.contains(": waiting")).map(|(at, _)| *at)
}
