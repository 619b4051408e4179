//! What a lock costs the server and the network.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::mebibytes;
use crate::statistics::micros_per_script;
use crate::support::proxy::Proxy;
use crate::support::{self, Server};
use crate::timing::{RUNS, median, millis};

pub(crate) fn measure() {
    let server = Server::on_tcp(&[]);
    round_trips(&server);
    server_time(&server);
    inspection();
}

/// The time that the scripts take on the server, including all that they keep for inspect.
fn server_time(server: &Server) {
    server.cli(&["CONFIG", "RESETSTAT"]);
    for _ in 0..RUNS {
        let mut command = support::rlock(["exec", "-n", "bench", "--", "true"]);
        command.env("RLOCK_URL", server.tcp_url());
        assert!(command.status().is_ok_and(|status| status.success()));
    }
    let micros = micros_per_script(server);
    println!("each of the two scripts of an exec takes {micros:.0} µs on the server");
}

/// The time to list many locks.
fn inspection() {
    const LOCKS: usize = 10_000;
    let server = Server::on_tcp(&[]);
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let url = server.tcp_url();
            std::thread::spawn(move || {
                for lock in (worker..LOCKS).step_by(4) {
                    let name = format!("deploy:job-{lock}");
                    let mut command = support::rlock(["acquire", "-q", "-t", "1h", &name]);
                    command.env("RLOCK_URL", &url).stdout(Stdio::null());
                    assert!(command.status().is_ok_and(|status| status.success()));
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().expect("all are acquired"));
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let mut command = support::rlock(["inspect"]);
            command.env("RLOCK_URL", server.tcp_url()).stdout(Stdio::null());
            let start = Instant::now();
            assert!(command.status().is_ok_and(|status| status.success()));
            start.elapsed()
        })
        .collect();
    println!(
        "inspect of {LOCKS} locks: {:.0} ms, {:.1} MiB of memory, {:.1} MiB with --json",
        median(&mut times).as_secs_f64() * 1000.0,
        peak_memory(&mut support::rlock(["inspect"]), &server),
        peak_memory(&mut support::rlock(["inspect", "--json"]), &server),
    );
}

/// The most memory that a command has used, in MiB, when it begins to print.
fn peak_memory(command: &mut Command, server: &Server) -> f64 {
    command.env("RLOCK_URL", server.tcp_url()).stdout(Stdio::piped());
    let mut inspect = command.spawn().expect("rlock runs");
    let mut stdout = inspect.stdout.take().expect("stdout is a pipe");
    stdout.read_exact(&mut [0]).expect("there are locks");
    let peak = mebibytes(inspect.id(), "VmHWM");
    // It has written no more than fits into the pipe.
    std::io::copy(&mut stdout, &mut std::io::sink()).expect("the list ends");
    assert!(inspect.wait().is_ok_and(|status| status.success()));
    peak
}

fn round_trips(server: &Server) {
    const DELAY: Duration = Duration::from_millis(25);
    let proxy = Proxy::to(server.port(), DELAY);
    let mut times = Vec::new();
    let mut flights = 0;
    for _ in 0..10 {
        let before = proxy.flights();
        let mut command = support::rlock(["exec", "-n", "far", "--", "true"]);
        let start = Instant::now();
        let status = command.env("RLOCK_URL", proxy.url()).status().expect("rlock runs");
        assert!(status.success());
        times.push(start.elapsed());
        flights = proxy.flights() - before;
    }
    println!(
        "the same through a proxy with 50 ms of round-trip time: {flights} round trips after the \
         handshake (which the proxy does not delay), {:.1} ms",
        millis(median(&mut times)),
    );
}
