//! Whether a command is dead before its lease ends, on a host that runs many other processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::load::median;
use crate::support::{Running, Server, until};

const OTHERS: usize = 20_000;
const ROUNDS: usize = 10;

/// The lease is so short that a look at all of these processes takes longer.
const TTL: &str = "300ms";

/// How long before the end of such a lease SIGKILL is due: the drift that a clock may have.
const DRIFT: f64 = 5.0;

/// Writes the time since boot into the file LIFE, again and again, whatever asks it to end. What
/// nobody kills exits after a minute.
const LIVES: &str = "use Time::HiRes 'clock_gettime'; $SIG{TERM} = 'IGNORE'; $| = 1;
    open my $life, '>', $ENV{LIFE} or die; print qq(READY\\n);
    for (my $end = time + 60; time < $end;) {
        sysseek $life, 0, 0; syswrite $life, sprintf '%020.6f', clock_gettime(7);
        select undef, undef, undef, 0.0002;
    }";

pub(crate) fn measure() {
    let _others = Others::start();
    println!("  {OTHERS} other processes, TTL {TTL}, a frozen server, SIGTERM ignored:");
    let in_session = "trap '' TERM; setsid perl -e \"$LIVES\" & wait";
    let script =
        format!("$rlock acquire --ttl {TTL} --while-pid $$ L >&2 && perl -e \"$LIVES\"; :");
    let exec = format!("exec $rlock exec --ttl {TTL} L");
    for (name, shell) in [
        ("a command", format!("{exec} perl -e \"$LIVES\"")),
        ("its descendant in another session", format!("{exec} sh -c '{in_session}'")),
        ("a script with a keeper", script),
    ] {
        let late = Vec::from_iter((0..ROUNDS).map(|_| lateness(&shell)));
        let in_time = late.iter().filter(|late| **late <= DRIFT).count();
        let worst = late.iter().copied().fold(f64::MIN, f64::max);
        println!(
            "    {name}: dead before the lease ended {in_time} of {ROUNDS} times; last sign of life \
             after SIGKILL was due: median {:.1} ms, at most {worst:.1} ms",
            median(late)
        );
    }
}

/// How long after SIGKILL was due it gave its last sign of life, in milliseconds.
fn lateness(shell: &str) -> f64 {
    let server = Server::start();
    let life = server.directory().join("life");
    let mut command = server.program("sh -c", shell);
    command.env("LIVES", LIVES).env("LIFE", &life);
    let mut running = Running::start(&mut command).prints_first("READY");
    server.is_renewed();
    server.signal("STOP");
    until("it is killed", || !running.process.is_running());
    let sign = || std::fs::read_to_string(&life).ok().and_then(|time| time.parse::<f64>().ok());
    // What rlock has not killed goes on.
    let mut last = sign();
    until("the last sign of life", || {
        std::thread::sleep(Duration::from_millis(50));
        std::mem::replace(&mut last, sign()) == last
    });
    server.signal("CONT");
    let history = server.inspect("L")["history"][0].clone();
    assert_eq!(history["ended"], "expired", "{history}");
    let ended = history["ended_at"].as_str().and_then(|time| humantime::parse_rfc3339(time).ok());
    let ended = ended.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).expect("a time");
    let boot = seconds(ClockId::Realtime) - seconds(ClockId::Boottime);
    let last = last.expect("a sign of life") + boot;
    (last - ended.as_secs_f64()) * 1000.0 + DRIFT
}

fn seconds(clock: ClockId) -> f64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    tv_sec as f64 + tv_nsec as f64 / 1e9
}

/// Processes that do nothing, and end with this.
struct Others(Child);

impl Others {
    fn start() -> Self {
        // Each waits for the end of stdin.
        let script = format!(
            "for (1..{OTHERS}) {{ my $new = fork // die qq($!\n); next if $new; <STDIN>; exit }}
            print qq(READY\n); close STDOUT; 1 while wait > 0"
        );
        let mut perl = Command::new("perl");
        let perl = perl.args(["-e", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut parent = perl.spawn().expect("perl starts");
        let stdout = parent.stdout.take().expect("it is piped");
        let ready = BufReader::new(stdout).lines().next();
        assert!(matches!(ready, Some(Ok(_))), "the system does not allow so many processes");
        Self(parent)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // This closes their stdin first.
        let _ = self.0.wait();
    }
}
