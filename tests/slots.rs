//! With --slots N, each holder has a number from 1 to N.

use crate::support::{self, *};
use serde_json::Value;

/// Prints the number of the slot, or `none`, and waits for a line or the end of stdin.
const SLOT: &str = "echo SLOT ${RLOCK_SLOT-none}; read _ || :";

/// Starts an exec with these options whose command prints its slot.
fn start(server: &Server, options: &str) -> Running {
    server.starts(&format!("exec {options} L sh -c"), SLOT)
}

/// Starts an exec that gets this slot.
#[track_caller]
fn holder(server: &Server, options: &str, slot: &str) -> Running {
    start(server, options).prints_first(&format!("SLOT {slot}"))
}

/// The slot of each holder in inspect, with its process ID.
#[track_caller]
fn slots(server: &Server) -> Vec<(u64, u64)> {
    let lock = server.inspect("L");
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let holders = lock["holders"].as_array().unwrap().iter();
    let mut slots: Vec<_> =
        holders.map(|holder| (number(&holder["slot"]), number(&holder["pid"]))).collect();
    slots.sort_unstable();
    slots
}

#[test]
fn a_newcomer_gets_the_lowest_free_number_and_a_holder_keeps_its_own() {
    let server = Server::start();
    let three = "-v --ttl 1500ms --slots 3";
    let first = holder(&server, three, "1");
    let mut second = holder(&server, three, "2");
    // When it is dead, its number is free.
    server.run(&format!("acquire {three} L")).exits(0);
    for _ in 0..2 {
        second.told("] renewed for");
    }
    let [one, two] = [&first, &second].map(|holder| u64::from(holder.pid()));
    until("the third is gone", || slots(&server) == [(1, one), (2, two)]);
    let third = holder(&server, three, "3");
    first.finish().exits(0);
    assert_eq!(slots(&server), [(2, two), (3, third.pid().into())]);
    let next = holder(&server, three, "1");
    for running in [third, second, next] {
        running.finish().exits(0);
    }
    // With another number of slots, it begins at 1 again.
    holder(&server, "--slots 2 --at-least 1m", "1").finish().exits(0);
    // A number stays taken until --at-least ends.
    holder(&server, "--slots 2", "2").finish().exits(0);
}

#[test]
fn a_number_that_is_freed_goes_to_the_next_waiter() {
    let server = Server::start();
    let first = holder(&server, "--slots 2", "1");
    let second = holder(&server, "--slots 2", "2");
    // A different number of slots, and other modes, wait.
    for other in ["--slots 3", "--shared"] {
        let told = format!("held with --slots 2, but requested with {other}");
        server.run(&format!("exec -n {other} L true")).exits(75).says(&told);
    }
    let [mut third, mut fourth] =
        [(); 2].map(|()| start(&server, "--slots 2").tells("waiting at position"));
    if !server.is_local() {
        // This needs no memory.
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    }
    second.finish().exits(0);
    assert_eq!(third.line(), "SLOT 2");
    first.finish().exits(0);
    assert_eq!(fourth.line(), "SLOT 1");
    third.finish().exits(0);
    fourth.finish().exits(0);
    assert!(server.is_free("L"));
}

#[test]
fn without_slots_an_inherited_number_is_removed() {
    let server = Server::start();
    for options in ["-x", "-s", "--on-unreachable run --url unix:///nowhere"] {
        let exec = format!("exec {options} L sh -c");
        let mut exec = server.rlock(exec.split(' ').chain([SLOT]));
        run(exec.env("RLOCK_SLOT", "7")).prints("SLOT none");
    }
    let nested = format!("$rlock exec M sh -c '{SLOT}'");
    server.exec_script("--slots 2 L", &nested).prints("SLOT none");
    let script = "RLOCK_SLOT=7; eval \"$($rlock acquire --shell L)\"; echo ${RLOCK_SLOT-none}";
    server.bash(script).prints("none");
}

#[test]
fn acquire_and_inspect_show_the_number() {
    let server = Server::start();
    assert_eq!(server.json("acquire --json --slots 3 L")["slot"], 1);
    let shell = server.run("acquire --shell --slots 3 L").out();
    assert!(shell.contains("RLOCK_SLOT=2; export") && shell.ends_with(" RLOCK_SLOT;"), "{shell}");
    assert_eq!(slots(&server).iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(server.inspect("L")["slots"], 3);
    let document = server.json("acquire --json M");
    assert_eq!(document.get("slot"), Some(&Value::Null), "{document}");
    assert_eq!(server.inspect("M")["holders"][0]["slot"], Value::Null);
}

support::also_on_local! {
    a_newcomer_gets_the_lowest_free_number_and_a_holder_keeps_its_own,
    a_number_that_is_freed_goes_to_the_next_waiter,
    acquire_and_inspect_show_the_number,
}
