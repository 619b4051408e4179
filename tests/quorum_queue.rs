//! The queue on several independent servers: order, contenders that do not wait, and servers that do
//! not answer.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::quorum::{at, far, servers};
use crate::support::*;

fn queued(server: &Server) -> String {
    server.cli(&["ZCARD", &side_key("L", "queue")])
}

/// Nothing of the lock is left on a server but marks.
fn is_clean(server: &Server) -> bool {
    !server.has("L")
        && queued(server) == "0"
        && server.cli(&["ZCARD", &side_key("L", "holds")]) == "0"
}

#[test]
fn waiters_acquire_the_lock_in_order_of_arrival_but_for_next_and_supersede() {
    for fault in ["CONT", "KILL", "STOP"] {
        let servers = servers(3);
        let file = servers[0].directory().join("order");
        let queue = |line: &str, word: &str| {
            let enter = format!("echo {word} >> {}", file.display());
            at(&servers).exec(line, &enter).tells("waiting at position")
        };
        let first = at(&servers).holder("L");
        let mut waiters = vec![queue("L", "1")];
        // As if the clocks differed by up to two hours.
        for (server, hours) in servers.iter().zip(0..) {
            let ticket =
                server.cli(&["HGET", &side_key("L", "state"), "ticket"]).parse::<u64>().unwrap();
            let ahead = (ticket + hours * 3_600_000_000).to_string();
            server.cli(&["HSET", &side_key("L", "state"), "ticket", &ahead]);
        }
        waiters.extend(["2", "3"].map(|word| queue("L", word)));
        let older = queue("--supersede L", "older");
        servers[1].signal(fault);
        waiters.push(queue("--supersede L", "4"));
        older.end().exits(79).says("superseded by ");
        waiters.push(queue("--next L", "0"));
        first.finish().exits(0);
        for waiter in waiters {
            waiter.end().exits(0);
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "0\n1\n2\n3\n4\n", "{fault}");
    }
}

/// It gives members half a second to become idle, which all of them are as soon as they are told.
#[test]
fn a_waiter_that_a_signal_ends_leaves_at_once() {
    let servers = servers(3);
    let holder = at(&servers).holder("L");
    let leave = |_| {
        let waiter = at(&servers).waiter("L");
        let sleeps = |server: &Server| server.reports("blocked_clients:1");
        until("it sleeps", || servers.iter().all(sleeps));
        let asked = Instant::now();
        waiter.ends_by("TERM");
        asked.elapsed()
    };
    let mut times = [0; 5].map(leave);
    times.sort_unstable();
    assert!(times[2] < Duration::from_millis(400), "{times:?}");
    holder.finish().exits(0);
}

#[test]
fn of_simultaneous_requests_with_n_exactly_one_acquires_the_lock() {
    for fault in ["CONT", "STOP"] {
        let servers = servers(3);
        servers[2].signal(fault);
        // Each is near to another server.
        let places = [[0, 10, 10], [10, 0, 10], [10, 10, 0]].map(|delays| far(&servers, delays));
        for round in 0..5 {
            let start = |number: usize| places[number % 3].1.exec("-n L", READY);
            let mut hosts: Vec<Running> = (0..5).map(start).collect();
            until("all but one have given up", || {
                let running =
                    hosts.iter_mut().filter_map(|it| it.process.is_running().then_some(()));
                running.count() <= 1
            });
            let mut codes: Vec<i32> = hosts.into_iter().map(|host| host.finish().code()).collect();
            codes.sort_unstable();
            assert_eq!(codes, [0, 75, 75, 75, 75], "{fault} round {round}");
        }
    }
}

#[test]
fn a_frozen_minority_delays_no_command_and_executes_its_requests_on_resuming() {
    let servers = servers(3);
    let all = at(&servers);
    servers[2].signal("STOP");
    // Each of these would otherwise take an I/O timeout of 500 ms.
    let mut longer = LongerWait::of("6s");
    for _ in 0..5 {
        all.run("exec L true").exits(0);
        let token = all.acquire("L");
        all.run("exec -n L true").exits(75);
        for act in ["inspect L", "renew L", "release L"] {
            run(all.rlock(act).env("RLOCK_TOKEN", &token)).exits(0);
        }
    }
    longer.is_not_over();
    servers[2].signal("CONT");
    until("the thawed server has carried out all that it was sent", || is_clean(&servers[2]));
    assert!(servers[2].reports("\nexpired_keys:0"));
}

#[test]
fn a_waiter_waits_for_restarted_servers_that_cannot_vote_yet() {
    let mut servers = servers(3);
    let all = at(&servers);
    servers.iter_mut().for_each(Server::kill);
    let begun = all.start("exec -w 1m M echo ENTERED").tells("0 of 3 servers usable");
    servers.iter_mut().for_each(Server::start_again);
    all.run("exec -n L true").exits(69);
    all.run("exec -w 300ms L true").exits(69).says("L: 3 of 3 servers cannot vote yet");
    let patient = all.start("exec L echo ENTERED").tells("cannot vote yet");
    patient.end().exits(0).prints("ENTERED");
    begun.end().exits(0).prints("ENTERED");
}

#[test]
fn a_wait_that_too_few_servers_could_end_is_not_busy_but_says_why() {
    let mut servers = servers(3);
    servers[1].kill();
    servers[1].start_again();
    servers[2].kill();
    let told = at(&servers).run("exec -w 300ms L true").exits(69);
    told.says("1 of 3 servers usable, 2 required").says("may have forgotten a lease");
}

#[test]
fn readers_acquire_together_as_do_holders_of_slots_and_an_owner_reenters_its_lock() {
    let servers = servers(3);
    let all = at(&servers);
    let writer = all.holder("--owner me L");
    all.run("exec -n --reentrant --owner me L true").exits(0);
    let enter = |line: &str| all.exec(line, READY).tells("waiting at position");
    let readers = [(); 3].map(|()| enter("--shared L"));
    let slots = [(); 2].map(|()| enter("--slots 2 L"));
    writer.finish().exits(0);
    let readers = readers.map(|reader| reader.prints_first("READY"));
    // A reader that comes later does not overtake those who wait.
    all.run("exec -n --shared L true").exits(75);
    for reader in readers {
        reader.finish().exits(0);
    }
    let slots = slots.map(|slot| slot.prints_first("READY"));
    all.run("exec -n --slots 2 L true").exits(75);
    for slot in slots {
        slot.finish().exits(0);
    }
    until("nothing is left", || servers.iter().all(is_clean));
}

#[test]
fn who_gives_up_or_is_refused_leaves_every_queue() {
    let servers = servers(3);
    let all = at(&servers);
    let are_empty = || servers.iter().all(|server| queued(server) == "0");
    let first = all.holder("L");
    all.run("exec -w 300ms L true").exits(75);
    let patient = all.waiter("L");
    assert!(patient.ends_by("TERM").status.code().is_none());
    until("all queues are empty", are_empty);
    first.finish();

    for server in &servers[1..] {
        server.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    }
    all.run("exec -n L true").exits(78);
    until("it has left", || queued(&servers[0]) == "0");
}

#[test]
fn a_keeper_takes_over_the_hold_as_it_is() {
    let servers = servers(3);
    let all = at(&servers);
    let script = Running::start(&mut Command::new("cat"));
    let acquired = all.run(&format!("acquire --json --while-pid {} L", script.pid())).json();
    let waiter = all.waiter("L");
    let shown = all.inspect("L");
    assert_eq!(shown["holders"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(shown["holders"][0]["fence"], acquired["fence"]);
    assert_eq!(shown["waiters"].as_array().unwrap().len(), 1, "{shown}");
    script.signal("KILL");
    waiter.end().exits(0);
}
