//! A waiter waits as long as requested, in order and through faults, and leaves no trace.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::proxy::Proxy;
use crate::support::{
    self, Finished, LongerWait, READY, Running, Server, acquire, holder, is_gone, run, until,
    waiter,
};

/// Just before the command starts, it would be too late: see docs/design.md.
#[test]
fn a_waiter_has_made_the_group_of_its_command_before_the_grant() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let print_group = ["exec", "L", "sh", "-c", "ps -o pgid= -p $$"];
    let mut waiting = Running::start(&mut server.rlock(print_group));
    waiting.told("waiting at position");
    let leader = run(Command::new("pgrep").args(["-P", &waiting.pid().to_string()])).out();
    until("the leader has ended", || is_gone(&leader));
    first.finish();
    let output = waiting.finish();
    assert_eq!(output.out().trim(), leader);
    let told = output.err();
    assert!(told.starts_with("rlock: L: acquired after ") && told.lines().count() == 1, "{told}");
}

#[test]
fn nonblock_fails_at_once_and_names_the_holder() {
    let server = Server::start();
    let first = holder(&server, &["--label", "https://ci/17"], "deploy");
    for options in [vec!["-n"], vec!["--nonblock"], vec!["-w", "0"]] {
        let arguments = ["exec"].iter().chain(&options).chain(&["deploy", "true"]);
        let output = run(server.rlock(arguments).env("USER", "x")).exits(75);
        let told = output.err();
        assert!(told.starts_with("rlock: deploy: held by "), "{told}");
        for part in
            [&format!("pid {} (sh) for ", first.pid()), ", label https://ci/17; not waiting"]
        {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(told.lines().count(), 1);
    }
    first.finish();
}

#[test]
fn the_conflict_exit_code_can_be_chosen() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    for status in [0, 1, 255] {
        let status = status.to_string();
        let output = run(&mut server.rlock(["exec", "-nE", &status, "L", "true"]));
        assert_eq!(output.code().to_string(), status);
        let output = run(&mut server.rlock(["acquire", "-n", "-E", &status, "L"]));
        assert_eq!(output.code().to_string(), status);
    }
    server.run("exec -n -E 256 L true").exits(64);
    first.finish();
}

#[test]
fn quiet_suppresses_the_busy_message_but_not_errors() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let output = server.run("exec -q -w 0.2 L true");
    assert_eq!((output.code(), output.err()), (75, String::new()));
    first.finish();
    let output = server.run("exec -q L no-such-command");
    assert_ne!(output.err(), "");
}

#[test]
fn a_wait_that_times_out_leaves_the_queue() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let start = Instant::now();
    let output = server.run("exec -w 300ms L true");
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(output.code(), 75);
    assert!(output.err().contains("gave up after "), "{output:?}");
    assert_eq!(server.waiting("L"), 0);
    first.finish();
}

#[test]
fn a_signal_ends_a_wait_and_leaves_the_queue() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    for (signal, number) in [("TERM", 15), ("HUP", 1), ("USR1", 10)] {
        let patient = waiter(&server, &[], "L", "");
        patient.signal(signal);
        let output = patient.end();
        // A shell shows this as 128+n.
        assert_eq!(output.status.signal(), Some(number), "{output:?}");
        assert_eq!(server.waiting("L"), 0, "{signal}");
    }
    let mut acquiring = Running::start(&mut server.rlock(["acquire", "L"]));
    acquiring.told("waiting at position 1");
    acquiring.signal("TERM");
    assert_eq!(acquiring.end().status.signal(), Some(15));
    assert_eq!(server.waiting("L"), 0);
    first.finish();
}

#[test]
fn a_dead_holder_frees_the_lock_when_its_lease_ends() {
    let server = Server::start();
    let first = holder(&server, &["--ttl", "3s"], "L");
    let next = waiter(&server, &[], "L", "next");
    let start = Instant::now();
    first.signal("KILL");
    assert_eq!(next.finish().out(), "ENTERED next");
    // A lease of 3 s is renewed every second, so two thirds of it at least were left.
    assert!(start.elapsed() >= Duration::from_millis(1_800), "{:?}", start.elapsed());
}

#[test]
fn a_killed_head_with_a_short_ttl_is_skipped_within_a_claim_window_and_a_heartbeat() {
    let server = Server::start();
    // A heartbeat is a third of the lease.
    let first = holder(&server, &[], "L");
    let dead = waiter(&server, &["--ttl", "1500ms"], "L", "dead");
    let next = waiter(&server, &["--ttl", "1500ms"], "L", "next");
    dead.signal("KILL");
    assert_eq!(dead.end().status.signal(), Some(9));
    // A claim of 2 s, a heartbeat of 500 ms, and 2 s to spare.
    let mut longer = LongerWait::of("4500ms");
    first.finish();
    assert_eq!(next.finish().out(), "ENTERED next");
    longer.is_not_over();
}

#[test]
fn a_killed_head_delays_the_next_waiter_only_by_the_claim_window() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    // Their heartbeat is 10 s.
    let dead = waiter(&server, &[], "L", "dead");
    let next = waiter(&server, &[], "L", "next");
    dead.signal("KILL");
    dead.end();
    // Longer than a claim of 2 s, and shorter than a heartbeat.
    let mut longer = LongerWait::of("6s");
    first.finish();
    assert_eq!(next.finish().out(), "ENTERED next");
    longer.is_not_over();
}

#[test]
fn a_head_killed_with_the_holder_delays_the_next_waiter_only_by_the_claim_window() {
    let server = Server::start();
    let first = holder(&server, &["--ttl", "3s"], "L");
    let dead = waiter(&server, &[], "L", "dead");
    let next = waiter(&server, &[], "L", "next");
    // Longer than a lease of 3 s and a claim of 2 s, and shorter than a heartbeat.
    let mut longer = LongerWait::of("9s");
    for killed in [dead, first] {
        killed.signal("KILL");
        killed.end();
    }
    assert_eq!(next.finish().out(), "ENTERED next");
    longer.is_not_over();
}

#[test]
fn a_head_that_leaves_the_queue_does_not_delay_the_next_waiter() {
    let server = Server::start();
    acquire(&server, &["--ttl", "4s"], "L");
    let head = waiter(&server, &[], "L", "head");
    let next = waiter(&server, &[], "L", "next");
    // Shorter than a heartbeat, which is 10 s.
    let mut longer = LongerWait::of("8s");
    head.signal("TERM");
    assert_eq!(head.end().status.signal(), Some(15));
    assert_eq!(next.finish().out(), "ENTERED next");
    longer.is_not_over();
}

#[test]
fn a_new_head_listens_for_its_grant_before_it_asks() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let next = waiter(&server, &[], "L", "next");
    let mailbox = server.mailbox("L", &server.waiters_token("L"));
    let asked = server.calls_of("evalsha");
    // The second message stands for the grant.
    server.cli(&["RPUSH", &mailbox, "head", "look"]);
    until("it has asked once", || server.calls_of("evalsha") == asked + 1);
    assert!(server.calls_of("blpop") >= 2);
    first.finish();
    assert_eq!(next.finish().out(), "ENTERED next");
}

#[test]
fn a_waiter_that_is_dead_before_the_handoff_is_not_handed_the_lock() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let dead = waiter(&server, &["--ttl", "1500ms"], "L", "dead");
    let exec = ["exec", "--ttl", "3s", "L", "sh", "-c", READY];
    let mut next = Running::start(&mut server.rlock(exec));
    next.told("waiting at position 2");
    dead.signal("KILL");
    dead.end();
    // It no longer counts after two heartbeats of 500 ms and a claim.
    until("the dead waiter is dropped", || server.waiting("L") == 1);
    first.finish();
    // The release itself granted the lock, to the waiter that is alive.
    assert_eq!(server.inspect("L")["holders"][0]["pid"], next.pid());
    assert_eq!(next.line(), "READY");
    assert_eq!(next.finish().code(), 0);
}

#[test]
fn a_waiter_that_does_not_claim_its_grant_in_time_queues_again_at_the_end() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let mut slow = waiter(&server, &["-v"], "L", "slow");
    let exec = ["exec", "L", "sh", "-c", READY];
    let mut next = Running::start(&mut server.rlock(exec));
    next.told("waiting at position 2");
    slow.signal("STOP");
    first.finish();
    assert_eq!(next.line(), "READY");
    let last = waiter(&server, &[], "L", "last");
    slow.signal("CONT");
    slow.told("at position 2, sleeping");
    assert_eq!(next.finish().code(), 0);
    assert_eq!(last.finish().out(), "ENTERED last");
    assert_eq!(slow.finish().out(), "ENTERED slow");
}

#[test]
fn a_waiter_that_loses_its_connection_keeps_its_position() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let first = holder(&server, &[], "L");
    let mut patient = Running::start(
        server
            .rlock(["exec", "-v", "--ttl", "3s", "L", "echo", "in"])
            .env("RLOCK_URL", proxy.url()),
    );
    patient.told("waiting at position 1");
    let second = waiter(&server, &[], "L", "second");
    proxy.cut();
    patient.told("at position 1, sleeping");
    patient.told("at position 1, sleeping");
    first.finish();
    assert_eq!(patient.finish().out(), "in");
    second.finish();
}

#[test]
fn a_heartbeat_makes_up_for_a_lost_wake_up() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let first = holder(&server, &[], "L");
    let mut command = server.rlock(["exec", "-v", "--ttl", "3s", "L", "echo", "in"]);
    let mut patient = Running::start(command.env("RLOCK_URL", proxy.url()));
    patient.told("sleeping");
    server.cli(&["CONFIG", "RESETSTAT"]);
    proxy.drop_replies(true);
    first.finish();
    until("the message is sent", || server.messages_about("L") == 1);
    proxy.drop_replies(false);
    assert_eq!(patient.finish().out(), "in");
    // It claimed its grant, and was not granted the lock a second time.
    assert_eq!(server.messages_about("L"), 1);
}

#[test]
fn a_waiter_with_a_fast_heartbeat_keeps_its_connection() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let mut patient =
        Running::start(&mut server.rlock(["exec", "-v", "--ttl", "150ms", "L", "true"]));
    patient.told("waiting at position");
    for _ in 0..40 {
        patient.told("sleeping");
    }
    let clients = server.cli(&["CLIENT", "LIST"]);
    let ids: Vec<u64> = clients
        .lines()
        .map(|line| line.strip_prefix("id=").unwrap().split(' ').next().unwrap().parse().unwrap())
        .collect();
    // The holder's, the waiter's, one for each redis-cli of this test, and a few more on a loaded
    // machine. A waiter whose connection is too impatient for the server's timers needs about 30.
    assert!(ids.iter().max().unwrap() - ids.iter().min().unwrap() <= 12, "{clients}");
    first.finish();
    patient.finish();
}

#[test]
fn a_new_waiter_passes_a_crowd_of_dead_ones() {
    let server = Server::start();
    let dead = |count: u32| {
        let script = format!(
            "for i = 1, {count} do redis.call('ZADD', KEYS[1], i, 'dead' .. i) end
             redis.call('HSET', KEYS[2], 'ticket', {count})"
        );
        server.cli(&["EVAL", &script, "2", "{rlock:L}?queue", "{rlock:L}?state"]);
    };
    dead(900);
    server.run("exec -n L true").exits(0);
    dead(5000);
    // Shorter than a heartbeat, which is 10 s.
    let mut longer = LongerWait::of("8s");
    server.run("exec L true").exits(0);
    longer.is_not_over();
}

#[test]
fn a_waiter_waits_for_an_unreachable_server_too() {
    let mut server = Server::start();
    let first = holder(&server, &["-q"], "L");
    let mut patient = waiter(&server, &[], "L", "patient");
    server.kill();
    patient.told("still waiting");
    first.signal("KILL");
    first.end();
    server.start_again();
    patient.told("the server is answering again");
    assert_eq!(patient.finish().out(), "ENTERED patient");
}

#[test]
fn a_bounded_wait_for_an_unreachable_server_exits_with_69() {
    let mut server = Server::start();
    let first = holder(&server, &["-q"], "L");
    let patient = waiter(&server, &["-w", "1s"], "L", "");
    server.kill();
    assert_eq!(patient.finish().code(), 69);
    first.signal("KILL");
    first.end();
}

#[test]
fn rlock_waits_for_another_tools_lock() {
    let server = Server::start();
    server.cli(&["SET", "rlock:L", "theirs", "NX", "PX", "900"]);
    server.run("exec -n L true").exits(75).says("held by another tool, whose key expires in");
    assert_eq!(server.cli(&["GET", "rlock:L"]), "theirs");
    let output = server.run("exec -w 20s L echo in");
    assert_eq!(output.out(), "in");
}

#[test]
fn another_tool_respects_a_lock_of_rlock() {
    let server = Server::start();
    let token = acquire(&server, &[], "L");
    assert_eq!(server.cli(&["SET", "rlock:L", "theirs", "NX", "PX", "900"]), "");
    assert_eq!(server.cli(&["GET", "rlock:L"]), token);
}

support::also_on_local! {
    nonblock_fails_at_once_and_names_the_holder,
    the_conflict_exit_code_can_be_chosen,
    quiet_suppresses_the_busy_message_but_not_errors,
    a_wait_that_times_out_leaves_the_queue,
    a_signal_ends_a_wait_and_leaves_the_queue,
    a_dead_holder_frees_the_lock_when_its_lease_ends,
    a_killed_head_with_a_short_ttl_is_skipped_within_a_claim_window_and_a_heartbeat,
    a_killed_head_delays_the_next_waiter_only_by_the_claim_window,
    a_head_killed_with_the_holder_delays_the_next_waiter_only_by_the_claim_window,
    a_waiter_that_does_not_claim_its_grant_in_time_queues_again_at_the_end,
    a_head_that_leaves_the_queue_does_not_delay_the_next_waiter,
    a_waiter_that_is_dead_before_the_handoff_is_not_handed_the_lock,
}
