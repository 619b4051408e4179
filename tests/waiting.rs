//! A waiter waits as long as requested, in order and through faults, and leaves no trace.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{self, *};

/// Just before the command starts, it would be too late: see docs/design.md.
#[test]
fn a_waiter_has_made_the_group_of_its_command_before_the_grant() {
    let (server, first) = held(&[]);
    let waiting = waiter(&server, &[], "L", "; ps -o pgid= -p $$");
    let leader = run(Command::new("pgrep").args(["-P", &waiting.pid().to_string()])).out();
    until("the leader has ended", || is_gone(&leader));
    first.finish();
    let output = waiting.finish();
    assert_eq!(output.out().lines().nth(1).unwrap().trim(), leader);
    let told = output.err();
    assert!(told.starts_with("rlock: L: acquired after ") && told.lines().count() == 1, "{told}");
}

#[test]
fn nonblock_fails_at_once_and_names_the_holder() {
    let server = Server::start();
    let first = holder(&server, &["--label", "https://ci/17"], "deploy");
    for option in ["-n", "--nonblock", "-w0"] {
        let told = server.run(&format!("exec {option} deploy true")).exits(75);
        let told = told.says(&format!("pid {} (sh) for ", first.pid()));
        let told = told.says(", label https://ci/17; not waiting").err();
        assert!(told.starts_with("rlock: deploy: held by "), "{told}");
        assert_eq!(told.lines().count(), 1);
    }
    first.finish();
}

#[test]
fn the_conflict_exit_code_can_be_chosen() {
    let (server, _) = acquired(&[]);
    for status in [0, 1, 255] {
        server.run(&format!("exec -nE {status} L true")).exits(status);
        server.run(&format!("acquire -n -E {status} L")).exits(status);
    }
}

#[test]
fn quiet_suppresses_the_busy_message_but_not_errors() {
    let (server, _) = acquired(&[]);
    let busy = server.run("exec -q -w 0.2 L true").exits(75);
    assert_eq!(busy.err(), "");
    assert_ne!(server.run("exec -q M no-such-command").err(), "");
}

#[test]
fn a_wait_that_times_out_leaves_the_queue() {
    let (server, _) = acquired(&[]);
    let start = Instant::now();
    server.run("exec -w 300ms L true").exits(75).says("gave up after ");
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(server.waiting("L"), 0);
}

/// It is late by less than a round trip, of which it needs several to find out what became of it.
#[test]
fn a_wait_ends_at_its_limit_even_on_a_slow_link() {
    let server = Server::on_tcp(&[]);
    let _first = holder(&server, &[], "L");
    server.learns_the_scripts();
    for (delay, status, says) in [
        (400, 75, "held by "),
        (800, 75, "held by "),
        // Not even the first answer arrives in time.
        (1_500, 69, " did not answer within "),
    ] {
        let wire = Proxy::to(server.port(), Duration::from_millis(delay));
        let start = Instant::now();
        run(&mut at(&wire.url(), "exec -w 2s L true")).exits(status).says(says);
        let late = start.elapsed().checked_sub(Duration::from_secs(2)).expect("not early");
        assert!(late < Duration::from_millis(2 * delay), "{delay}: late by {late:?}");
        // Its next heartbeat would be due only after 10 s.
        let mut longer = LongerWait::of("8s");
        until("it has left the queue", || server.waiting("L") == 0);
        longer.is_not_over();
    }
}

#[test]
fn a_signal_ends_a_wait_and_leaves_the_queue() {
    let (server, _) = acquired(&[]);
    for (line, signal, number) in [
        ("exec L true", "TERM", 15),
        ("exec L true", "HUP", 1),
        ("exec L true", "USR1", 10),
        ("acquire L", "TERM", 15),
    ] {
        let mut waiting = Running::start(&mut at(&server.url(), line));
        waiting.told("waiting at position 1");
        waiting.signal(signal);
        // A shell shows this as 128+n.
        assert_eq!(waiting.end().status.signal(), Some(number), "{line} {signal}");
        assert_eq!(server.waiting("L"), 0, "{line} {signal}");
    }
}

/// The next waiter would notice it at its heartbeat, which is every 10 s for a lease of 30 s.
#[test]
fn a_killed_head_delays_the_next_waiter_only_by_the_claim_window() {
    // The holder releases the lock, or dies with the head. A claim takes 2 s.
    for (lease, releases, limit) in [("30s", true, "6s"), ("2s", false, "8s")] {
        let (server, mut first) = held(&["--ttl", lease]);
        let mut dead = waiter(&server, &[], "L", "dead");
        let next = waiter(&server, &[], "L", "next");
        dead.process.kill();
        let mut longer = LongerWait::of(limit);
        match releases {
            true => drop(first.finish()),
            false => first.process.kill(),
        }
        next.finish().prints("ENTERED next");
        longer.is_not_over();
    }
}

#[test]
fn a_waiter_that_does_not_claim_its_grant_in_time_queues_again_at_the_end() {
    let (server, first) = held(&[]);
    let mut slow = waiter(&server, &["-v"], "L", "slow");
    let mut next = waiter(&server, &[], "L", "next; read _ || :");
    slow.signal("STOP");
    first.finish();
    assert_eq!(next.line(), "ENTERED next");
    let last = waiter(&server, &[], "L", "last");
    slow.signal("CONT");
    slow.told("at position 2, sleeping");
    next.finish().exits(0);
    last.finish().prints("ENTERED last");
    slow.finish().prints("ENTERED slow");
}

/// How often: see `rules::reminders`.
#[test]
fn a_waiter_shows_in_a_log_that_its_position_or_the_holder_has_changed() {
    let (server, first) = held(&[]);
    let next = waiter(&server, &[], "L", "; read _ || :");
    let mut last = waiter(&server, &["--ttl", "1s"], "L", "last");
    first.finish();
    let told = last.told("still waiting at position 1 after ");
    assert!(told.contains("held by ") && told.contains(&next.pid().to_string()), "{told}");
    // Not only as a reminder.
    assert!(!told.contains("after 1m"), "{told}");
    next.finish();
    last.finish().prints("ENTERED last");
}

#[test]
fn a_heartbeat_makes_up_for_a_lost_wake_up() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let first = holder(&server, &[], "L");
    let mut patient = Running::start(&mut at(&proxy.url(), "exec -v --ttl 3s L echo in"));
    patient.told("sleeping");
    server.cli(&["CONFIG", "RESETSTAT"]);
    proxy.drop_replies(true);
    first.finish();
    until("the message is sent", || server.messages_about("L") == 1);
    proxy.drop_replies(false);
    patient.finish().prints("in");
    // It claimed its grant, and was not granted the lock a second time.
    assert_eq!(server.messages_about("L"), 1);
}

#[test]
fn a_waiter_waits_for_an_unreachable_server_too() {
    let (mut server, mut first) = held(&["--ttl", "2s"]);
    let mut patient = waiter(&server, &[], "L", "patient");
    let bounded = waiter(&server, &["-w", "1s"], "L", "");
    server.kill();
    patient.told("still waiting");
    bounded.finish().exits(69);
    first.process.kill();
    server.start_again();
    patient.told("the server is answering again");
    patient.finish().prints("ENTERED patient");
}

support::also_on_local! {
    a_wait_that_times_out_leaves_the_queue,
    a_signal_ends_a_wait_and_leaves_the_queue,
    a_killed_head_delays_the_next_waiter_only_by_the_claim_window,
    a_waiter_that_does_not_claim_its_grant_in_time_queues_again_at_the_end,
}
