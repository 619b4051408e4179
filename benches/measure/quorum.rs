//! A quorum of three servers, next to one server in the same run.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, Finished, Server};
use crate::timing::{Named, compare, millis};

const TTL: &str = "3s";

/// How many clients with `-n` request the lock at the same time.
const CONTENDERS: usize = 5;
/// How many times they do so.
const RACES: usize = 200;

pub(crate) fn measure() {
    let single = [Server::start()];
    let three: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    // A server votes once it has been up for a TTL.
    three.iter().for_each(|server| server.await_uptime(4));

    println!("a quorum of three servers, next to one server:");
    let one: Named<'_> = ("one server", &|| uncontended(&single));
    compare(("exec -n NAME -- true", &|| uncontended(&three)), one);
    three[2].signal("STOP");
    compare(("the same with one frozen", &|| uncontended(&three)), one);
    three[2].signal("CONT");

    let times: Vec<Duration> = [&single[..], &three].map(|servers| crowd(servers, 30)).into();
    println!(
        "  30 clients with 5 ms of work: {:.0} ms, one server {:.0} ms, ratio {:.2}",
        millis(times[1]),
        millis(times[0]),
        times[1].as_secs_f64() / times[0].as_secs_f64()
    );
    let reference = loops(&single);
    let loops = loops(&three);
    println!("  8 clients that loop with 0.2 s of work, for 12 s:");
    for (name, loops) in [("one server", &reference), ("quorum", &loops)] {
        println!(
            "    {name:<11} {} to {} grants each, longest wait {:.2} s, {:.1} commands a grant",
            loops.grants.iter().min().expect("8 clients"),
            loops.grants.iter().max().expect("8 clients"),
            loops.longest.as_secs_f64(),
            loops.commands
        );
    }
    let ratio = loops.longest.as_secs_f64() / reference.longest.as_secs_f64();
    println!("    longest wait, ratio {ratio:.2}");

    println!("  rounds of {CONTENDERS} clients with -n that come together, of {RACES}:");
    println!("    all servers up: {}", races(&three, "up"));
    three[2].signal("STOP");
    println!("    one frozen:     {}", races(&three, "frozen"));
    three[2].signal("CONT");
    three[2].signal("KILL");
    println!("    one dead:       {}", races(&three, "dead"));
}

fn rlock(servers: &[Server], arguments: &[&str]) -> Command {
    let mut command = support::rlock(arguments);
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    command.env("RLOCK_URL", urls.join(" ")).env("RLOCK_TTL", TTL).stdin(Stdio::null());
    command
}

fn uncontended(servers: &[Server]) -> Command {
    rlock(servers, &["exec", "-n", "free", "--", "true"])
}

/// How long so many clients that start together take until all have had the lock.
fn crowd(servers: &[Server], clients: usize) -> Duration {
    let start = Instant::now();
    let spawn = |_| {
        let command = &["exec", "-q", "crowd", "--", "sleep", "0.005"];
        rlock(servers, command).spawn().expect("rlock runs")
    };
    let clients: Vec<_> = (0..clients).map(spawn).collect();
    for mut client in clients {
        assert!(client.wait().is_ok_and(|status| status.success()));
    }
    start.elapsed()
}

struct Loops {
    /// Of each client.
    grants: Vec<usize>,
    longest: Duration,
    /// That the servers received, for each grant.
    commands: f64,
}

/// Measures clients that request the lock again immediately, and hold it for 0.2 s each time.
fn loops(servers: &[Server]) -> Loops {
    for server in servers {
        server.cli(&["CONFIG", "RESETSTAT"]);
    }
    let until = Instant::now() + Duration::from_secs(12);
    let client = || {
        let mut waits = Vec::new();
        while Instant::now() < until {
            let start = Instant::now();
            let command = &["exec", "-q", "loops", "--", "sh", "-c", "echo; sleep 0.2"];
            let mut client = support::Running::start(&mut rlock(servers, command));
            client.line();
            waits.push(start.elapsed());
            assert_eq!(client.finish().code(), 0);
        }
        waits
    };
    let waits: Vec<Vec<Duration>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("all are granted")).collect()
    });
    let commands = ["evalsha", "eval", "blpop"];
    let calls = |server: &Server| commands.map(|name| server.calls_of(name)).iter().sum::<u64>();
    let grants: Vec<usize> = waits.iter().map(Vec::len).collect();
    Loops {
        longest: waits.iter().flatten().max().copied().unwrap_or_default(),
        commands: servers.iter().map(calls).sum::<u64>() as f64
            / grants.iter().sum::<usize>() as f64,
        grants,
    }
}

/// How many rounds had a winner, and how long the slowest round took.
fn races(servers: &[Server], name: &str) -> String {
    let (mut without, mut several, mut slowest) = (0, 0, Duration::ZERO);
    for round in 0..RACES {
        let name = format!("race-{name}-{round}");
        let start = Instant::now();
        let spawn = |_| {
            // The lock stays busy for the others after the command.
            let arguments = ["exec", "-q", "-n", "--at-least", TTL, &name, "--", "true"];
            rlock(servers, &arguments).spawn().expect("rlock runs")
        };
        let clients: Vec<_> = (0..CONTENDERS).map(spawn).collect();
        let won =
            |mut client: std::process::Child| client.wait().is_ok_and(|status| status.success());
        match clients.into_iter().map(won).filter(|won| *won).count() {
            0 => without += 1,
            1 => {}
            _ => several += 1,
        }
        slowest = slowest.max(start.elapsed());
    }
    let slowest = millis(slowest);
    format!("{without} without a winner, {several} with several, the slowest took {slowest:.0} ms")
}
