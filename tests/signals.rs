//! Signals reach the command as themselves, and none is lost.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use support::{Finished, Running, Server, run, until};

#[test]
fn each_signal_reaches_the_command_as_itself() {
    let server = Server::start();
    let script = "for s in HUP INT QUIT TERM USR1 USR2 WINCH; do trap \"echo $s\" $s; done
        echo READY; while read line; do :; done; while :; do sleep 0.01; done";
    let mut first = Running::start(&mut server.rlock(["exec", "L", "bash", "-c", script]));
    assert_eq!(first.line(), "READY");
    drop(first.stdin.take());
    let ignored = |signal: u32| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1_u64 << (signal - 1)) != 0
    };
    for (signal, number) in [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("USR1", 10),
        ("USR2", 12),
        ("WINCH", 28),
        ("TERM", 15),
    ] {
        // What is ignored where the tests run is ignored by rlock and its command too.
        if !ignored(number) {
            first.signal(signal);
            assert_eq!(first.line(), signal);
        }
    }
    first.signal("KILL");
    first.end();
}

#[test]
fn a_command_may_clean_up_under_the_lock() {
    let server = Server::start();
    let script =
        "trap 'echo cleaning; read _; exit 3' TERM; echo READY; while :; do sleep 0.01; done";
    let mut command = server.rlock(["exec", "--ttl", "500ms", "L", "bash", "-c", script]);
    let mut first = Running::start(&mut command);
    assert_eq!(first.line(), "READY");
    first.signal("TERM");
    assert_eq!(first.line(), "cleaning");
    server.cli(&["CONFIG", "RESETSTAT"]);
    until("it is renewed", || server.calls_of("evalsha") >= 4);
    assert_eq!(run(&mut server.rlock(["exec", "-n", "L", "true"])).code(), 75);
    assert_eq!(first.finish().code(), 3);
}

#[test]
fn a_signal_reaches_the_commands_whole_group() {
    let server = Server::start();
    let script = "sleep 1000 & sleep 1000 & echo READY; wait";
    let mut first = Running::start(&mut server.rlock(["exec", "L", "sh", "-c", script]));
    assert_eq!(first.line(), "READY");
    first.signal("TERM");
    // stdout ends only when the last of the group is gone.
    assert_eq!(first.end().status.signal(), Some(15));
}

#[test]
fn term_at_any_moment_of_the_start_is_neither_lost_nor_leaves_a_lock() {
    let server = Server::start();
    for delay in 0..50 {
        let mut first =
            Running::start(&mut server.rlock(["exec", "-n", "L", "sh", "-c", "sleep 1000 & wait"]));
        // The moment is what is tested, so there is nothing to wait for but the time.
        let moment = Instant::now() + Duration::from_micros(delay * 1000);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        first.signal("TERM");
        let status = first.process.wait().unwrap();
        assert_eq!(status.signal(), Some(15), "after {delay} ms: {status:?}");
        // Killed before it could handle the signal it may have sent its request, but only then.
        if delay > 20 {
            assert_eq!(server.cli(&["EXISTS", "rlock:L"]), "0", "after {delay} ms");
        }
        server.cli(&["FLUSHALL"]);
    }
}
