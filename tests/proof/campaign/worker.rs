//! A worker: rlock with a command that writes down when it ran, and uses two counters.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::plan::{Clocks, Mode, Style, WaitLimit, Work};
use super::record::End;
use super::strain::watch_process;
use super::time::{Span, now};
use crate::support::clock::Clock;
use crate::support::limit::Process;
use crate::support::{Finished, rlock, run};

/// Appends its name, its fence and the time to a file each millisecond until its time is over. The
/// first line also has the number of its slot, if it has one.
///
/// With `counts`, it adds one to two counters: it reads them at the start and writes them at the
/// end. The plain one takes every write. The fenced one takes a write only with a fence that is not
/// lower than the highest that it has seen.
const COMMAND: &str = r#"
    use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);
    use Fcntl qw(:DEFAULT :flock);
    my ($directory, $name, $seconds, $stubborn, $counts) = @ARGV;
    my $fence = $ENV{RLOCK_FENCE};
    $SIG{TERM} = 'IGNORE' if $stubborn;
    sub file { sysopen my $file, "$directory/$_[0]", O_RDWR | O_CREAT | $_[1] or die; $file }
    sub numbers { sysseek $_[0], 0, 0; sysread $_[0], my $text, 99; map $_ + 0, split ' ', $text }
    sub write_to { my $to = shift; sysseek $to, 0, 0; syswrite $to, sprintf '%020d %020d', @_ }
    my $out = file 'runs', O_APPEND;
    sub note {
        my $now = clock_gettime(CLOCK_MONOTONIC);
        syswrite $out, join(' ', $name, $fence, sprintf('%.6f', $now), @_) . "\n";
    }
    sub fenced {
        my ($next) = @_;
        my $file = file 'fenced', 0;
        flock $file, LOCK_EX or die;
        my ($value, $highest) = numbers $file;
        $value //= 0;
        if ($fence < $highest) { note 'rejected'; return }
        write_to $file, $next // $value, $fence;
        note 'fenced', $next if defined $next;
        $value;
    }
    note defined $ENV{RLOCK_SLOT} ? ('slot', $ENV{RLOCK_SLOT}) : ();
    my ($plain, $fenced);
    if ($counts) { ($plain) = numbers(file 'plain', 0); $fenced = fenced }
    my $end = clock_gettime(CLOCK_MONOTONIC) + $seconds;
    while (clock_gettime(CLOCK_MONOTONIC) < $end) { note; sleep 0.001 }
    if ($counts) {
        write_to file('plain', 0), $plain + 1, 0;
        note 'plain', $plain + 1;
        fenced $fenced + 1 if defined $fenced;
    }
    note 'done';
"#;

/// A script that acquires the lock itself and then becomes the command.
const SCRIPT: &str = r#"
    program=$1 options=$2; shift 2
    lock=$("$program" acquire --shell --while-pid $$ $options) || exit
    eval "$lock"
    exec perl -e "$COMMAND" "$@"
"#;

/// How far the time of day of some clients is ahead.
const HOURS: Duration = Duration::from_secs(5 * 3_600);

/// The same command with another clock since boot, or as it is if the system does not permit that.
fn in_time_namespace(command: &Command) -> Command {
    static PERMITTED: LazyLock<bool> = LazyLock::new(|| {
        let unshare = run(Command::new("unshare").args(["--time", "--boottime", "1", "true"]));
        if !unshare.status.success() {
            println!("without time namespaces: {}", unshare.err());
        }
        unshare.status.success()
    });
    let mut inside = Command::new(if *PERMITTED { "unshare" } else { "env" });
    if *PERMITTED {
        inside.args(["--time", "--boottime", "86400"]);
    }
    inside.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside
}

/// A worker that was started.
pub struct Started {
    pid: Pid,
    pub started: f64,
    pub stops: Vec<Span>,
    told: Arc<Mutex<Vec<(f64, String)>>>,
    end: JoinHandle<(f64, End)>,
    stuck: JoinHandle<Vec<Span>>,
}

impl Started {
    pub fn start(work: &Work, number: usize, lock: &str, url: &str, directory: &Path) -> Self {
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        let mut options = vec!["--ttl".to_owned(), millis(work.ttl)];
        match work.mode {
            Mode::Exclusive => {}
            Mode::Shared => options.push("--shared".into()),
            Mode::Slots(count) => options.push(format!("--slots={count}")),
            Mode::Reentrant(owner) => {
                options.extend(["--reentrant".into(), format!("--owner=o{owner}")]);
            }
        }
        match work.limit {
            WaitLimit::Forever => {}
            WaitLimit::For(longest) => options.extend(["-w".into(), millis(longest)]),
            WaitLimit::None => options.push("-n".into()),
        }
        if let Some(at_least) = work.at_least {
            options.extend(["--at-least".into(), millis(at_least)]);
        }
        if work.min_replicas > 0 {
            options.push(format!("--min-replicas={}", work.min_replicas));
        }
        if work.next {
            options.push("--next".into());
        }
        options.push(lock.into());
        let mut command = match work.style {
            Style::Exec => {
                let exec = ["exec".to_owned()].into_iter().chain(options);
                rlock(exec.chain(["perl", "-e", COMMAND].map(str::to_owned)))
            }
            Style::WhilePid => {
                let program = rlock([""; 0]);
                let mut script = Command::new("sh");
                script.args(["-c", SCRIPT, "sh"]).arg(program.get_program());
                script.arg(options.join(" ")).env("COMMAND", COMMAND);
                for (name, _) in program.get_envs() {
                    script.env_remove(name);
                }
                script
            }
        };
        command.arg(directory).arg(number.to_string()).arg(work.lasting.as_secs_f64().to_string());
        command.arg(if work.stubborn { "1" } else { "" });
        command.arg(if work.mode == Mode::Exclusive { "1" } else { "" });
        match work.clocks {
            Clocks::OfHost => {}
            Clocks::Wall => {
                let file = directory.join(format!("clock-{number}"));
                Clock::ahead(HOURS, file).give_to(&mut command);
            }
            Clocks::Boot => command = in_time_namespace(&command),
        }
        command.env("RLOCK_URL", url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let started = now();
        let mut process = Process::start(&mut command);
        let pid = Pid::from_raw(i32::try_from(process.id()).unwrap());
        let told = Arc::<Mutex<Vec<_>>>::default();
        let (mut stderr, telling) = (process.stderr(), Arc::clone(&told));
        std::thread::spawn(move || {
            while let Some(line) = stderr.line("a message") {
                telling.lock().unwrap().push((now(), line));
            }
        });
        let end = std::thread::spawn(move || {
            let status = process.wait().unwrap();
            let end = status.code().map(End::Status);
            (now(), end.unwrap_or_else(|| End::Signal(status.signal().unwrap())))
        });
        let stuck = watch_process(pid.as_raw().unsigned_abs(), work.style == Style::WhilePid);
        Self { pid, started, stops: Vec::new(), told, end, stuck }
    }

    /// Signals the worker unless it has ended.
    pub fn signal(&self, signal: Signal) {
        if !self.has_ended() {
            let _ = kill(self.pid, signal);
        }
    }

    pub fn has_ended(&self) -> bool {
        self.end.is_finished()
    }

    /// When it told that it waits in the queue.
    pub fn queued(&self) -> Option<f64> {
        let told = self.told.lock().unwrap();
        told.iter().find(|(_, line)| line.contains(": waiting")).map(|(at, _)| *at)
    }

    /// Waits for the end, and returns it with all that was told, and when rlock could not run.
    pub fn end(self) -> (f64, End, Vec<(f64, String)>, Vec<Span>) {
        let (ended, end) = self.end.join().unwrap_or_else(|_| (now(), End::Never));
        let told = self.told.lock().unwrap().clone();
        (ended, end, told, self.stuck.join().unwrap())
    }
}
