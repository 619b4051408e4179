//! How long a lock takes to pass through a queue, compared with flock(1).

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::load::median;
use crate::support::{self, Server, until};

const NAME: &str = "queue";

/// How many waiters join at once.
const JOINING: usize = 50;

pub(crate) fn measure() {
    let server = Server::on_tcp(&[]);
    let directory = server.directory().display().to_string();
    let file = format!("{directory}/flock");
    println!("  time per handoff in a queue of `true`, medians, alternating with flock(1):");
    let local = format!("local:{directory}/locks");
    for (store, url) in [("a server", server.tcp_url()), ("local:", local)] {
        for (waiters, rounds) in [(2, 50), (100, 9), (1_000, 3)] {
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..rounds {
                times[0].push(flock(&file, waiters));
                times[1].push(rlock(&url, waiters));
            }
            let [flock, rlock] = times.map(median);
            println!(
                "    {store:<8} {waiters:>5} waiters, {rounds:>2} rounds: {rlock:.2} ms   flock \
                 {flock:.2} ms   ratio {:.2}",
                rlock / flock
            );
        }
    }
}

/// The mean time of a handoff in milliseconds: from the release until all waiters have had the
/// lock, divided by their number.
fn rlock(url: &str, waiters: usize) -> f64 {
    let rlock = |arguments: &[&str]| {
        let mut command = support::rlock(arguments);
        command.env("RLOCK_URL", url);
        command
    };
    let holder = rlock(&["exec", "-q", NAME, "--", "cat"]);
    let waiter = || rlock(&["exec", "-q", NAME, "--", "true"]);
    let waiting = || {
        let shown = support::run(&mut rlock(&["inspect", "--json", NAME]));
        shown.stdout.windows(12).filter(|it| it == b"\"waiting_ms\"").count()
    };
    passage(holder, waiter, waiters, waiting)
}

fn flock(file: &str, waiters: usize) -> f64 {
    let flock = |program| {
        let mut command = Command::new("flock");
        command.args([file, program]);
        command
    };
    let waiting = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let inode = format!(":{} ", std::fs::metadata(file).map_or(0, |it| it.ino()));
        locks.lines().filter(|line| line.contains("->") && line.contains(&inode)).count()
    };
    passage(flock("cat"), || flock("true"), waiters, waiting)
}

fn passage(
    mut holder: Command,
    waiter: impl Fn() -> Command,
    waiters: usize,
    waiting: impl Fn() -> usize,
) -> f64 {
    let mut holder =
        holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = holder.stdin.take().expect("it is piped");
    // The command repeats a line once it runs.
    stdin.write_all(b"\n").expect("the command reads");
    let mut stdout = holder.stdout.take().expect("it is piped");
    stdout.read_exact(&mut [0]).expect("the command runs");
    let start = |_| waiter().stdin(Stdio::null()).spawn().expect("it starts");
    let mut queue: Vec<Child> = Vec::new();
    while queue.len() < waiters {
        queue.extend((queue.len()..waiters).take(JOINING).map(start));
        until("all wait", || waiting() == queue.len());
    }
    let start = Instant::now();
    drop(stdin);
    for child in std::iter::once(&mut holder).chain(&mut queue) {
        assert!(child.wait().is_ok_and(|status| status.success()));
    }
    start.elapsed().as_secs_f64() * 1000.0 / waiters as f64
}
