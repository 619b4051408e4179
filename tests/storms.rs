//! A command that leaves orphans or sends signals without end keeps rlock from nothing.

use std::process::Command;

use crate::support::*;

/// Makes these system calls of rlock slow, so that little is needed to keep it busy.
fn slowed(calls: &str) -> String {
    format!("strace -qq -o /dev/null -e trace={calls} -e inject={calls}:delay_enter=1000")
}

/// An exec of L that may be slowed, in its own PID namespace: all that the command leaves
/// behind ends with rlock.
fn contained(server: &Server, slowed: &str, command: &str) -> Command {
    let exec = format!("{slowed} $rlock exec --ttl 6s L {command}");
    server.contained("--pid --fork --mount-proc", &exec)
}

/// An exec of L whose command leaves a thousand orphans a second for so many seconds, and ends with
/// the status 7 after that. rlock can reap half of them.
fn storm(server: &Server, seconds: u32) -> Running {
    let storm = format!("{} 20 20000 {seconds} 7 0", STORM.display());
    let mut exec = contained(server, &slowed("waitid"), &storm);
    Running::start(&mut exec).prints_first("READY")
}

#[test]
fn a_command_that_leaves_orphans_without_end_keeps_its_lock_and_its_status() {
    let server = Server::start();
    let first = storm(&server, 12);
    for _ in 0..3 {
        server.is_renewed();
    }
    first.end().exits(7);
}

#[test]
fn a_command_that_leaves_orphans_without_end_is_stopped_when_its_lock_is_revoked() {
    let server = Server::start();
    let first = storm(&server, 40);
    let mut longer = LongerWait::of("20s");
    server.revokes(first);
    longer.is_not_over();
}

#[test]
fn processes_that_start_the_next_faster_than_rlock_can_list_them_are_admitted_in_time() {
    let server = Server::start();
    // The list of rlock's children grows by more in a second than rlock reads at a time.
    let lists = (2..10).map(|pid| format!("-P /proc/{pid}/task/{pid}/children "));
    let lists = String::from_iter(lists);
    let slowed = format!("strace -qq -o /dev/null {lists} -e inject=read:delay_enter=1000000");
    let storm = format!("{} 20 20000 60 7 0 setsid", STORM.display());
    let first = Running::start(&mut contained(&server, &slowed, &storm));
    let first = first.prints_first("READY");
    let mut longer = LongerWait::of("30s");
    let ended = server.revokes(first);
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(told.contains("stop what still runs without the lock"), "{told}");
    longer.is_not_over();
}

#[test]
fn the_end_of_a_command_is_noticed_beside_the_orphans_that_it_leaves() {
    let server = Server::start();
    // The command ends at once, but not its children.
    let command = format!("sh -c '{} 20 20000 40 0 0 & sleep 2; exit 7'", STORM.display());
    let mut longer = LongerWait::of("20s");
    let first = Running::start(&mut contained(&server, &slowed("waitid"), &command));
    first.end().exits(7);
    longer.is_not_over();
}

#[test]
fn a_flood_of_signals_keeps_rlock_from_nothing() {
    let server = Server::start();
    // Each of three processes sends a signal for ten seconds. The command ends after that.
    let flood = "trap '' USR1 USR2 WINCH
        for signal in USR1 USR2 WINCH; do
            perl -e '$end = time + 10; while (time < $end) { kill @ARGV }' $signal $PPID &
        done
        wait
        exit 7";
    let script = server.directory().join("flood");
    std::fs::write(&script, flood).unwrap();
    let mut exec = contained(&server, &slowed("read"), &format!("bash {}", script.display()));
    let first = Running::start(&mut exec);
    until("the lock is held", || !server.is_free("L"));
    for _ in 0..3 {
        server.is_renewed();
    }
    first.end().exits(7);
}

#[test]
fn a_renewal_that_was_answered_in_time_counts_however_late_rlock_learns_of_it() {
    let server = Server::start();
    // Only the main thread is late, once, and by more than a lease.
    let late =
        "strace -qq -o /dev/null -e trace=waitid -e inject=waitid:delay_enter=4500000:when=3";
    let exec = format!("{late} $rlock exec --ttl 3s L sh -c 'sleep 6; exit 7'");
    Running::start(&mut server.program("sh -c", &exec)).end().exits(7);
}
