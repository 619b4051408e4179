//! Renewals come in time on a busy machine, and no oftener than due on an idle one. In one test, so
//! that the machine is as it should be.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use support::{Finished, Server, holder, until};

#[test]
fn no_lease_lapses_on_a_busy_machine_and_100_ms_do_not_on_an_idle_one() {
    idle();
    busy();
}

fn idle() {
    let server = Server::start();
    let first = holder(&server, &["--ttl", "100ms"], "L");
    server.cli(&["CONFIG", "RESETSTAT"]);
    let start = Instant::now();
    until("thirty renewals", || server.calls_of("evalsha") >= 30);
    // A renewal is due every 33 ms, so thirty take 960 ms; a bit less for the one under way.
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    let output = first.finish();
    assert_eq!(output.code(), 0, "{output:?}");
}

fn busy() {
    let server = Server::start();
    let first = holder(&server, &["--ttl", "1s"], "L");
    let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut load: Vec<_> = (0..8).map(|_| spin()).collect();
    server.cli(&["CONFIG", "RESETSTAT"]);
    until("nine renewals", || server.calls_of("evalsha") >= 9);
    for process in &mut load {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let output = first.finish();
    assert_eq!((output.code(), output.err()), (0, String::new()));
}
