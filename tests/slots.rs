//! With --slots N, each holder has a number from 1 to N.

use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{self, Finished, Running, Server, acquire, binary, rlock, run, until};

/// Prints the number of the slot, or `none`, and waits for a line or the end of stdin.
const SLOT: &str = "echo SLOT ${RLOCK_SLOT-none}; read _ || :";

/// Starts an exec whose command prints its slot.
fn start(server: &Server, options: &[&str]) -> Running {
    let exec = [&["exec"], options, &["L", "sh", "-c", SLOT]].concat();
    Running::start(&mut server.rlock(exec))
}

/// Starts an exec that gets this slot.
#[track_caller]
fn holder(server: &Server, options: &[&str], slot: &str) -> Running {
    let mut holder = start(server, options);
    assert_eq!(holder.line(), format!("SLOT {slot}"));
    holder
}

/// Waits in the queue.
#[track_caller]
fn waiter(server: &Server, options: &[&str]) -> Running {
    let mut waiter = start(server, options);
    waiter.told("waiting at position");
    waiter
}

/// The slot of each holder in inspect, with its process ID.
#[track_caller]
fn slots(server: &Server) -> Vec<(u64, u64)> {
    let lock = server.inspect("L");
    let holders = lock["holders"].as_array().unwrap().iter();
    let number = |holder: &serde_json::Value, field| holder[field].as_u64().unwrap_or(0);
    let mut slots: Vec<_> =
        holders.map(|holder| (number(holder, "slot"), number(holder, "pid"))).collect();
    slots.sort_unstable();
    slots
}

#[test]
fn a_newcomer_gets_the_lowest_free_number_and_a_holder_keeps_its_own() {
    let server = Server::start();
    let three = ["-v", "--ttl", "3s", "--slots", "3"];
    let first = holder(&server, &three, "1");
    let mut second = holder(&server, &three, "2");
    let third = holder(&server, &three, "3");
    let pids = [&first, &second, &third].map(|holder| u64::from(holder.pid()));
    for _ in 0..2 {
        second.told("] renewed for");
    }
    assert_eq!(slots(&server), [(1, pids[0]), (2, pids[1]), (3, pids[2])]);
    first.finish().exits(0);
    assert_eq!(slots(&server), [(2, pids[1]), (3, pids[2])]);
    let next = holder(&server, &three, "1");
    third.finish().exits(0);
    second.finish().exits(0);
    let again = holder(&server, &three, "2");
    next.finish().exits(0);
    again.finish().exits(0);
    // With another number of slots, it begins at 1 again.
    assert_eq!(holder(&server, &["--slots", "2"], "1").finish().code(), 0);
}

#[test]
fn a_number_that_is_freed_goes_to_the_next_waiter() {
    let server = Server::start();
    let two = ["--slots", "2"];
    let first = holder(&server, &two, "1");
    let second = holder(&server, &two, "2");
    let mut third = waiter(&server, &two);
    let mut fourth = waiter(&server, &two);
    second.finish().exits(0);
    assert_eq!(third.line(), "SLOT 2");
    first.finish().exits(0);
    assert_eq!(fourth.line(), "SLOT 1");
    third.finish().exits(0);
    fourth.finish().exits(0);
}

#[test]
fn the_number_of_a_dead_holder_is_free_when_its_lease_expires() {
    let server = Server::start();
    acquire(&server, &["--slots", "2", "--ttl", "2s"], "L");
    let second = holder(&server, &["--slots", "2"], "2");
    until("the dead one is gone", || slots(&server).len() == 1);
    assert_eq!(holder(&server, &["--slots", "2"], "1").finish().code(), 0);
    second.finish().exits(0);
}

#[test]
fn a_number_stays_taken_until_at_least_ends() {
    let server = Server::start();
    let first = holder(&server, &["--slots", "2", "--at-least", "1m"], "1");
    first.finish().exits(0);
    let second = holder(&server, &["--slots", "2"], "2");
    assert_eq!(slots(&server).len(), 2);
    second.finish().exits(0);
}

#[test]
fn without_slots_an_inherited_number_is_removed() {
    let server = Server::start();
    for mode in ["-x", "-s"] {
        let exec = ["exec", mode, "L", "sh", "-c", SLOT];
        assert_eq!(run(server.rlock(exec).env("RLOCK_SLOT", "7")).out(), "SLOT none");
    }
    let nested = format!("{} exec M sh -c '{SLOT}'", binary());
    let output = run(&mut server.rlock(["exec", "--slots", "2", "L", "sh", "-c", &nested]));
    assert_eq!(output.out(), "SLOT none", "{output:?}");
    let unlocked = ["exec", "--on-unreachable", "run", "L", "sh", "-c", SLOT];
    let output = run(rlock(unlocked).env("RLOCK_URL", "unix:///nowhere").env("RLOCK_SLOT", "7"));
    assert_eq!(output.out(), "SLOT none", "{output:?}");
    let script = "RLOCK_SLOT=7; eval \"$(\"$0\" acquire --shell L)\"; echo ${RLOCK_SLOT-none}";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, binary()]).env("RLOCK_URL", server.url());
    assert_eq!(run(&mut shell).out(), "none");
}

#[test]
fn acquire_and_inspect_show_the_number() {
    let server = Server::start();
    let output = server.run("acquire --json --slots 3 L");
    let document: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
    assert_eq!(document["slot"], 1, "{document}");
    let shell = server.run("acquire --shell --slots 3 L").out();
    assert!(shell.contains("RLOCK_SLOT=2; export") && shell.ends_with(" RLOCK_SLOT;"), "{shell}");
    assert_eq!(slots(&server).iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [1, 2]);
    let page = server.run("inspect L").out();
    for slot in ["\n  slot     1\n", "\n  slot     2\n"] {
        assert!(page.contains(slot), "{page}");
    }
    let output = server.run("acquire --json M");
    let document: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
    assert_eq!(document.get("slot"), Some(&serde_json::Value::Null), "{document}");
    assert_eq!(server.inspect("M")["holders"][0]["slot"], serde_json::Value::Null);
    let page = server.run("inspect M").out();
    assert!(!page.contains("slot"), "{page}");
}

#[test]
fn a_request_whose_reply_was_lost_gets_the_same_number_again() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let two = ["--slots", "2"];
    let first = holder(&server, &two, "1");
    // A grant that was never read, and one to a waiter that never learned of it.
    for queued in [false, true] {
        let blocker = queued.then(|| holder(&server, &two, "2"));
        let exec = ["exec", "-v", "--ttl", "3s", "--slots", "2", "L", "sh", "-c", SLOT];
        let mut command = server.rlock(exec);
        command.env("RLOCK_URL", proxy.url());
        let mut second = if let Some(blocker) = blocker {
            let mut second = Running::start(&mut command);
            second.told("sleeping");
            proxy.break_reply_after(0);
            blocker.finish().exits(0);
            second
        } else {
            proxy.break_reply_after(0);
            Running::start(&mut command)
        };
        assert_eq!(second.line(), "SLOT 2");
        assert_eq!(slots(&server).len(), 2);
        second.finish().exits(0);
    }
    first.finish().exits(0);
}

#[test]
fn a_server_out_of_memory_hands_a_number_on() {
    let server = Server::start();
    let two = ["--slots", "2"];
    let first = holder(&server, &two, "1");
    let second = holder(&server, &two, "2");
    let mut third = waiter(&server, &two);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    first.finish().exits(0);
    assert_eq!(third.line(), "SLOT 1");
    third.finish().exits(0);
    second.finish().exits(0);
    assert!(server.is_free("L"));
}

support::also_on_local! {
    a_newcomer_gets_the_lowest_free_number_and_a_holder_keeps_its_own,
    a_number_that_is_freed_goes_to_the_next_waiter,
    the_number_of_a_dead_holder_is_free_when_its_lease_expires,
    a_number_stays_taken_until_at_least_ends,
    without_slots_an_inherited_number_is_removed,
    acquire_and_inspect_show_the_number,
}
