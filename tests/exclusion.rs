//! Two exclusive holders never run at once, and no client overtakes the queue.

use std::fs;

use crate::support::{self, *};

#[test]
fn fifty_processes_increment_a_counter_without_lost_updates() {
    let server = Server::start();
    let file = server.directory().join("count");
    fs::write(&file, "0").unwrap();
    let increment = format!("read n < {0}; echo $((n + 1)) > {0}", file.display());
    let processes: Vec<Running> =
        (0..50).map(|_| server.starts("exec -q L sh -c", &increment)).collect();
    for process in processes {
        process.finish().exits(0);
    }
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), "50");
}

#[test]
fn waiters_acquire_the_lock_in_order_of_arrival_with_two_messages_for_each() {
    let server = Server::start();
    let order = server.directory().join("order");
    let first = holder(&server, &[], "L");
    let enter = |number| waiter(&server, &[], "L", &format!("{number} >> {}", order.display()));
    let waiters: Vec<Running> = (0..10).map(enter).collect();
    if !server.is_local() {
        server.cli(&["CONFIG", "RESETSTAT"]);
    }
    first.finish();
    for waiter in waiters {
        waiter.finish().exits(0);
    }
    let wanted: String = (0..10).map(|number| format!("ENTERED {number}\n")).collect();
    assert_eq!(fs::read_to_string(&order).unwrap(), wanted);
    if !server.is_local() {
        // One to each waiter that is granted the lock, and one to each that becomes the first in the
        // queue.
        assert_eq!(server.messages_about("L"), 10 + 9);
        // Each of the ten claims once and releases once, and looks once when it has become the head;
        // the first holder releases once.
        assert!((21..=21 + 9).contains(&server.calls_of("evalsha")));
    }
}

#[test]
fn a_newcomer_does_not_barge_past_a_waiter() {
    let (server, first) = held(&[]);
    let patient = waiter(&server, &[], "L", "patient");
    // A stopped waiter cannot claim its grant, so the lock stays between two holders.
    patient.signal("STOP");
    first.finish().exits(0);
    server.run("exec -n L true").exits(75);
    patient.signal("CONT");
    patient.finish().prints("ENTERED patient");
}

#[test]
fn the_fencing_token_grows_with_every_hold_and_survives_the_loss_of_all_data() {
    let server = Server::start();
    let mut last = 0;
    for round in 0..6 {
        let fence = fence(&server);
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        if round == 3 {
            server.forget_all();
        }
    }
}

/// The fencing token of a new hold.
#[track_caller]
fn fence(server: &Server) -> u64 {
    server.exec_script("L", "echo $RLOCK_FENCE").exits(0).out().parse().unwrap()
}

#[test]
fn a_corrupted_fencing_token_is_replaced_or_rejected_with_a_reason() {
    let server = Server::start();
    for spoilt in ["abc", "-1"] {
        server.cli(&["HSET", &side_key("L", "state"), "fence", spoilt]);
        let fence = fence(&server);
        assert!((1_700_000_000_000_000..1 << 53).contains(&fence), "{spoilt}: {fence}");
    }
    let seconds: u64 = server.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let next_week = (seconds + 7 * 24 * 3_600) * 1_000_000;
    for ahead in ["inf", &next_week.to_string()] {
        server.cli(&["HSET", &side_key("L", "state"), "fence", ahead]);
        server.run("exec -n L true").exits(78).says("ahead of the server's clock");
    }
}

#[test]
fn an_unlisted_holder_with_a_longer_lease_keeps_waiters_out_after_data_loss() {
    let server = Server::start();
    let mut others: Vec<Running> =
        (0..3).map(|_| holder(&server, &["-s", "--ttl", "1500ms"], "L")).collect();
    let longest = holder(&server, &["-s", "--ttl", "4s", "--on-lost", "continue"], "L");
    let waiting = waiter(&server, &["--ttl", "1500ms"], "L", "at last");
    server.forget_all();
    until("the lock is closed", || closed(&server));
    for other in &mut others {
        other.told("stopping the command");
    }
    longest.finish();
    waiting.end().prints("ENTERED at last");
}

/// Whether the lock is closed because the server lost its data.
fn closed(server: &Server) -> bool {
    server.run("inspect --json L").out().contains("\"id\":\"closed\"")
}

/// The state that inspect shows for the lock, and the PID of its first holder.
fn state(server: &Server) -> (String, u64) {
    let lock = server.inspect("L");
    let state = lock["state"].as_str().unwrap_or("free").to_owned();
    (state, lock["holders"][0]["pid"].as_u64().unwrap_or(0))
}

#[test]
fn a_deleted_key_admits_nobody_before_its_holder_has_released() {
    let server = Server::start();
    let mut first = support::holder_that_cleans_up(&server, "L");
    let second = waiter(&server, &[], "L", "second");
    // As if another tool had taken the lock and released it.
    server.cli(&["SET", "rlock:L", "theirs"]);
    assert_eq!(state(&server).0, "foreign");
    server.cli(&["DEL", "rlock:L"]);
    server.run("exec -n L true").exits(75).says("revoked, free within");
    assert_eq!(state(&server), ("revoked".into(), first.pid().into()));
    assert_ne!(server.cli(&["EXISTS", "rlock:L"]), "0", "other tools are kept out too");
    // The next renewal reports it.
    assert_eq!(first.line(), "STOPPING");
    assert_eq!(state(&server).0, "revoked");
    first.say("go");
    first.end().exits(76);
    // Long before the lease would have expired.
    second.end().prints("ENTERED second");
}

#[test]
fn waiters_tell_a_server_about_a_holder_that_it_has_forgotten() {
    for newcomer in [false, true] {
        let (server, mut first) = held(&["--ttl", "9s", "--on-lost", "continue"]);
        let fence = server.fence("L");
        let second = waiter(&server, &["--ttl", "1500ms"], "L", "second");
        server.forget_all();
        if newcomer {
            // Before the waiter has asked again, or after it: if it comes too late, the waiter has
            // said who holds the lock.
            let newcomer = server.run("exec -n L true");
            assert!([0, 75].contains(&newcomer.code()), "{newcomer:?}");
        }
        until("the lock is closed", || closed(&server) && state(&server).0 == "revoked");
        let told = "closed for up to ";
        server.run("exec -n L true").exits(75).says(told);
        assert!(server.run("inspect L").out().contains(told));
        assert!(newcomer || server.fence("L") == fence);
        first.told("letting the command finish");
        assert_eq!(state(&server).0, "revoked");
        first.finish().exits(76);
        second.end().prints("ENTERED second");
    }
}

support::also_on_local! {
    fifty_processes_increment_a_counter_without_lost_updates,
    waiters_acquire_the_lock_in_order_of_arrival_with_two_messages_for_each,
    a_newcomer_does_not_barge_past_a_waiter,
    the_fencing_token_grows_with_every_hold_and_survives_the_loss_of_all_data,
}
