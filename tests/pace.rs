//! Renewals come in time on a busy machine, and no more often than due on an idle one. One test runs
//! both, so that it controls the load of the machine. On Redis and on `local:`.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use support::limit::Process;
use support::{Finished, Server, holder};

#[test]
fn renewals_keep_a_1_s_lease_on_a_busy_machine_and_a_100_ms_lease_on_an_idle_one() {
    for engine in [|test: fn()| test(), support::server::on_local] {
        engine(idle);
        engine(busy);
    }
}

fn idle() {
    let server = Server::start();
    let mut first = holder(&server, &["-v", "--ttl", "100ms"], "L");
    first.told("renewed for");
    let start = Instant::now();
    for _ in 0..30 {
        first.told("renewed for");
    }
    // A renewal is due every 33 ms, so thirty take 990 ms, or less if the first was reported late.
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    first.finish().exits(0);
}

fn busy() {
    let server = Server::start();
    let mut first = holder(&server, &["-v", "--ttl", "1s"], "L");
    let spin = |_| Process::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let load: Vec<Process> = (0..8).map(spin).collect();
    first.told("acquired");
    for _ in 0..9 {
        let told = first.told("rlock: L: ");
        assert!(told.contains("] renewed for"), "{told}");
    }
    drop(load);
    let output = first.finish().exits(0);
    // Details and no warning.
    assert!(output.err().lines().all(|line| line.starts_with("rlock: L: [")), "{output:?}");
}
