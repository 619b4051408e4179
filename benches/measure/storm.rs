//! Whether rlock keeps a lease in time beside a command that leaves orphans without end.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::compiled::STORM;
use crate::support::trace::longest_turn;
use crate::support::{Running, Server};

const CHAINS: u32 = 200;
const SECONDS: u32 = 10;
const STATUS: i32 = 7;
const TTL: u32 = 3;
const ROUNDS: usize = 5;

pub(crate) fn measure() {
    println!("  {CHAINS} chains of processes that each start the next and end, TTL {TTL}s:");
    for (idle, life) in [(0, 35_000), (5_000, 45_000)] {
        let rounds = Vec::from_iter((0..ROUNDS).map(|_| Round::run(idle, life)));
        let most = |of: fn(&Round) -> f64| rounds.iter().map(of).fold(f64::MIN, f64::max);
        let least = rounds.iter().map(|round| round.rate).fold(f64::MAX, f64::min);
        println!(
            "    {least:.0} to {:.0} orphans a second beside {idle} idle ones: status {STATUS} and the \
             lock {} of {ROUNDS} times; longest pause between renewals {:.2} s, beyond the lateness \
             of a process that only sleeps {:.2} s; the end noticed after {:.2} s; longest turn \
             {:.1} ms of CPU time",
            most(|round| round.rate),
            rounds.iter().filter(|round| round.kept).count(),
            most(|round| round.pause),
            most(|round| round.pause - round.late),
            most(|round| round.end),
            longest(idle, life) * 1e3,
        );
    }
}

/// What happened beside one storm, in seconds.
struct Round {
    kept: bool,
    rate: f64,
    pause: f64,
    late: f64,
    end: f64,
}

fn start(server: &Server, idle: u32, life: u32) -> Running {
    let exec = format!(
        "exec $rlock exec --ttl {TTL}s L {} {CHAINS} {life} {SECONDS} {STATUS} {idle}",
        STORM.display()
    );
    let mut exec = server.contained("--pid --fork --mount-proc", &exec);
    Running::start(&mut exec).prints_first("READY")
}

impl Round {
    fn run(idle: u32, life: u32) -> Self {
        let server = Server::start();
        let mut monitor = server.cli_command(&["MONITOR"]);
        let mut monitor = monitor.stdout(Stdio::piped()).spawn().expect("redis-cli starts");
        let told = BufReader::new(monitor.stdout.take().expect("it is piped"));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let requests = scope.spawn(|| Vec::from_iter(told.lines().map_while(Result::ok)));
            let late = scope.spawn(|| lateness(&over));
            let mut running = start(&server, idle, life);
            let rate = running.line().parse().expect("a rate");
            let printed = Instant::now();
            let kept = running.process.wait().expect("it ends").code() == Some(STATUS);
            let end = printed.elapsed().as_secs_f64();
            over.store(true, Ordering::Relaxed);
            monitor.kill().expect("it runs");
            let _ = monitor.wait();
            let requests = requests.join().expect("it reads");
            let scripts = requests.iter().filter(|line| line.contains(" \"EVALSHA\" "));
            let times = scripts.filter_map(|line| line.split(' ').next()?.parse::<f64>().ok());
            let times = Vec::from_iter(times);
            let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
            let late = late.join().expect("it sleeps");
            Self { kept, rate, pause: pauses.fold(0.0, f64::max), late, end }
        })
    }
}

/// How late at most a thread wakes that does nothing but sleep.
fn lateness(over: &AtomicBool) -> f64 {
    let mut most = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let (pause, begun) = (Duration::from_millis(20), Instant::now());
        std::thread::sleep(pause);
        most = most.max(begun.elapsed() - pause);
    }
    most.as_secs_f64()
}

/// The longest turn of rlock's event loop, in seconds of its own CPU time.
fn longest(idle: u32, life: u32) -> f64 {
    let server = Server::start();
    let running = start(&server, idle, life);
    let parent = |pid: &str| format!("/proc/{0}/task/{0}/children", pid.trim());
    let child = |pid: &str| std::fs::read_to_string(parent(pid)).expect("a child");
    let rlock = child(&running.pid().to_string()).trim().parse().expect("one child");
    longest_turn(rlock).as_secs_f64()
}
