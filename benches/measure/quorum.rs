//! A quorum of three servers, next to one server in the same run.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::hyperfine::compare;
use crate::support::{self, Finished, Server};

const TTL: &str = "3s";

/// How many clients request the same lock again and again.
const CLIENTS: usize = 8;

pub(crate) fn measure() {
    let single = [Server::start()];
    let three: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    // A server votes once it has been up for a TTL.
    three.iter().for_each(|server| server.await_uptime(4));
    let exec = |servers: &[Server], mode: &str| {
        let urls: String = servers.iter().map(|it| format!("--url {} ", it.url())).collect();
        format!("{} exec {urls} -t {TTL} -n {mode} -- true", support::binary())
    };
    let commands = [
        ("exec -n NAME -- true on one server", exec(&single, "free")),
        ("on a quorum", exec(&three, "free")),
        ("with --slots 2", exec(&three, "--slots 2 slots")),
    ];
    compare(60, &commands);
    println!("  with one server of the quorum frozen:");
    three[2].signal("STOP");
    compare(60, &commands);
    three[2].signal("CONT");
    println!("  {CLIENTS} clients that loop with 0.2 s of work, for 12 s:");
    for (name, servers) in [("one server", &single[..]), ("quorum", &three)] {
        let (grants, longest) = loops(servers);
        println!("    {name}: {grants} grants, longest wait {:.2} s", longest.as_secs_f64());
    }
}

/// How often clients that request a lock again immediately are granted it, and their longest wait.
fn loops(servers: &[Server]) -> (usize, Duration) {
    let until = Instant::now() + Duration::from_secs(12);
    let client = || {
        let mut waits = Vec::new();
        while Instant::now() < until {
            let start = Instant::now();
            let mut client = support::Running::start(&mut looping(servers));
            client.line();
            waits.push(start.elapsed());
            assert_eq!(client.finish().code(), 0);
        }
        waits
    };
    let waits: Vec<Duration> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().expect("all are granted")).collect()
    });
    (waits.len(), waits.iter().max().copied().unwrap_or_default())
}

fn looping(servers: &[Server]) -> Command {
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let mut command = support::rlock(["exec", "-q", "loops", "--", "sh", "-c", "echo; sleep 0.2"]);
    command.env("RLOCK_URL", urls.join(" ")).env("RLOCK_TTL", TTL).stdin(Stdio::null());
    command
}
