//! The queue on several independent servers: order, contenders that do not wait, and servers that do
//! not answer.

use std::process::Command;

use serde_json::Value;

use crate::support::quorum::{at, holder, inspect};
use crate::support::{Finished, LongerWait, READY, Running, Server, run, until};

/// Servers that have been up for longer than a lease.
fn servers(count: usize) -> Vec<Server> {
    let servers: Vec<Server> = (0..count).map(|_| Server::on_tcp(&[])).collect();
    servers.iter().for_each(|server| server.await_uptime(4));
    servers
}

/// Starts an exec that waits in the queue, and appends `word` to the file once it holds the lock.
fn waiter(servers: &[Server], options: &[&str], word: &str) -> Running {
    let file = servers[0].directory().join("order");
    let enter = format!("echo {word} >> {}", file.display());
    let exec = [&["exec"], options, &["L", "sh", "-c", &enter]].concat();
    let mut waiter = Running::start(&mut at(servers, &exec));
    waiter.told("waiting at position");
    waiter
}

fn order(servers: &[Server]) -> String {
    let file = servers[0].directory().join("order");
    std::fs::read_to_string(file).unwrap_or_default().split_whitespace().collect()
}

/// Nothing of the lock is left on a server but marks, and nothing had to expire.
fn is_clean(server: &Server) -> bool {
    server.cli(&["EXISTS", "rlock:L"]) == "0"
        && server.cli(&["ZCARD", "{rlock:L}?queue"]) == "0"
        && server.cli(&["ZCARD", "{rlock:L}?holds"]) == "0"
}

#[test]
fn waiters_acquire_the_lock_in_order_of_arrival() {
    for fault in ["", "KILL", "STOP"] {
        let mut servers = servers(3);
        let mut first = holder(&servers, &[]);
        let waiters: Vec<Running> =
            ["1", "2", "3", "4"].map(|word| waiter(&servers, &[], word)).into();
        let names = inspect(&servers)["waiters"].as_array().unwrap().len();
        assert_eq!(names, 4);
        match fault {
            "KILL" => servers[1].kill(),
            "STOP" => servers[1].signal("STOP"),
            _ => {}
        }
        first.say("");
        assert_eq!(first.finish().code(), 0);
        for waiter in waiters {
            assert_eq!(waiter.end().code(), 0);
        }
        assert_eq!(order(&servers), "1234", "{fault}");
    }
}

#[test]
fn the_clocks_of_the_servers_do_not_change_the_order() {
    let servers = servers(3);
    let mut first = holder(&servers, &[]);
    let mut waiters = vec![waiter(&servers, &[], "1")];
    for (number, server) in servers.iter().enumerate() {
        // As if the clocks differed by up to two hours.
        let ticket = server.cli(&["HGET", "{rlock:L}?state", "ticket"]).parse::<u64>().unwrap();
        let ahead = (ticket + number as u64 * 3_600_000_000).to_string();
        server.cli(&["HSET", "{rlock:L}?state", "ticket", &ahead]);
    }
    waiters.extend(["2", "3", "4"].map(|word| waiter(&servers, &[], word)));
    first.say("");
    assert_eq!(first.finish().code(), 0);
    for waiter in waiters {
        assert_eq!(waiter.end().code(), 0);
    }
    assert_eq!(order(&servers), "1234");
}

#[test]
fn a_later_client_does_not_overtake_a_waiter() {
    let servers = servers(3);
    let mut reader = holder(&servers, &["--shared"]);
    let writer = waiter(&servers, &[], "writer");
    run(&mut at(&servers, &["exec", "-n", "--shared", "L", "true"])).exits(75);
    let later = waiter(&servers, &["--shared"], "reader");
    reader.say("");
    assert_eq!(reader.finish().code(), 0);
    assert_eq!((writer.end().code(), later.end().code()), (0, 0));
    assert_eq!(order(&servers), "writerreader");
}

#[test]
fn of_simultaneous_requests_with_n_exactly_one_acquires_the_lock() {
    for fault in ["", "KILL", "STOP"] {
        let mut servers = servers(3);
        match fault {
            "KILL" => servers[2].kill(),
            "STOP" => servers[2].signal("STOP"),
            _ => {}
        }
        for round in 0..5 {
            let start = |_| {
                let exec = ["exec", "-n", "L", "sh", "-c", READY];
                Running::start(&mut at(&servers, &exec))
            };
            let mut hosts: Vec<Running> = (0..5).map(start).collect();
            until("all but one have given up", || {
                hosts.iter_mut().filter_map(|host| host.process.is_running().then_some(())).count()
                    <= 1
            });
            let codes: Vec<i32> = hosts.into_iter().map(|host| host.finish().code()).collect();
            let winners = codes.iter().filter(|code| **code == 0).count();
            let losers = codes.iter().filter(|code| **code == 75).count();
            assert_eq!((winners, losers), (1, 4), "{fault} round {round}: {codes:?}");
        }
    }
}

#[test]
fn a_frozen_minority_delays_no_command_and_executes_its_requests_on_resuming() {
    let servers = servers(3);
    servers[2].signal("STOP");
    // Each of these would otherwise take an I/O timeout of 750 ms.
    let mut longer = LongerWait::of("8s");
    for _ in 0..5 {
        assert_eq!(run(&mut at(&servers, &["exec", "L", "true"])).code(), 0);
        let token = run(&mut at(&servers, &["acquire", "L"])).out();
        assert_eq!(run(&mut at(&servers, &["exec", "-n", "L", "true"])).code(), 75);
        assert_eq!(run(&mut at(&servers, &["inspect", "L"])).code(), 0);
        assert_eq!(run(&mut at(&servers, &["renew", "L", &token])).code(), 0);
        assert_eq!(run(&mut at(&servers, &["release", "L", &token])).code(), 0);
    }
    longer.is_not_over();
    servers[2].signal("CONT");
    until("the thawed server has carried out all that it was sent", || is_clean(&servers[2]));
    assert!(servers[2].cli(&["INFO", "stats"]).contains("\nexpired_keys:0"));
}

#[test]
fn a_waiter_waits_for_restarted_servers_that_cannot_vote_yet() {
    let mut servers = servers(3);
    servers.iter_mut().for_each(Server::kill);
    let mut begun =
        Running::start(&mut at(&servers, &["exec", "-w", "1m", "M", "echo", "ENTERED"]));
    begun.told("0 of 3 servers usable");
    servers.iter_mut().for_each(Server::start_again);
    run(&mut at(&servers, &["exec", "-n", "L", "true"])).exits(69);
    let output = run(&mut at(&servers, &["exec", "-w", "500ms", "L", "true"])).exits(69);
    let last = output.err().lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("L: 3 of 3 servers cannot vote yet"), "{output:?}");
    assert!(!output.err().contains("waiting at"), "{output:?}");
    let mut patient = Running::start(&mut at(&servers, &["exec", "L", "echo", "ENTERED"]));
    patient.told("cannot vote yet");
    assert_eq!(patient.end().out(), "ENTERED");
    assert_eq!(begun.end().out(), "ENTERED");
}

#[test]
fn a_dead_waiter_at_the_head_is_skipped() {
    let servers = servers(3);
    let mut first = holder(&servers, &[]);
    let mut dead = waiter(&servers, &[], "dead");
    let next = waiter(&servers, &[], "next");
    dead.signal("KILL");
    dead.process.wait().unwrap();
    first.say("");
    assert_eq!(first.finish().code(), 0);
    assert_eq!(next.end().code(), 0);
    assert_eq!(order(&servers), "next");
}

#[test]
fn readers_acquire_together_as_do_holders_of_slots_and_an_owner_reenters_its_lock() {
    let servers = servers(3);
    let mut writer = holder(&servers, &["--owner", "me"]);
    let inner = ["exec", "-n", "--reentrant", "--owner", "me", "L", "true"];
    assert_eq!(run(&mut at(&servers, &inner)).code(), 0);
    let enter = |mode: &'static [&'static str]| {
        let exec = [&["exec"], mode, &["L", "sh", "-c", READY]].concat();
        let mut waiter = Running::start(&mut at(&servers, &exec));
        waiter.told("waiting at position");
        waiter
    };
    let mut readers = [enter(&["--shared"]), enter(&["--shared"]), enter(&["--shared"])];
    let mut slots = [enter(&["--slots", "2"]), enter(&["--slots", "2"])];
    writer.say("");
    assert_eq!(writer.finish().code(), 0);
    readers.iter_mut().for_each(|reader| assert_eq!(reader.line(), "READY"));
    for mut reader in readers {
        reader.say("");
        assert_eq!(reader.finish().code(), 0);
    }
    slots.iter_mut().for_each(|slot| assert_eq!(slot.line(), "READY"));
    assert_eq!(run(&mut at(&servers, &["exec", "-n", "--slots", "2", "L", "true"])).code(), 75);
    for mut slot in slots {
        slot.say("");
        assert_eq!(slot.finish().code(), 0);
    }
    until("nothing is left", || servers.iter().all(is_clean));
}

#[test]
fn a_waiter_that_gives_up_leaves_every_queue() {
    let servers = servers(3);
    let first = holder(&servers, &[]);
    run(&mut at(&servers, &["exec", "-w", "300ms", "L", "true"])).exits(75);
    let patient = waiter(&servers, &[], "");
    patient.signal("TERM");
    assert!(patient.end().status.code().is_none());
    until("all queues are empty", || {
        servers.iter().all(|server| server.cli(&["ZCARD", "{rlock:L}?queue"]) == "0")
    });
    first.finish();
}

#[test]
fn a_keeper_takes_over_the_hold_as_it_is() {
    let servers = servers(3);
    let script = Running::start(&mut Command::new("cat"));
    let pid = script.pid().to_string();
    let acquire = ["acquire", "--json", "--while-pid", &pid, "L"];
    let acquired = run(&mut at(&servers, &acquire));
    let acquired: Value = serde_json::from_str(&acquired.out()).unwrap();
    let waiter = waiter(&servers, &[], "1");
    let shown = inspect(&servers);
    assert_eq!(shown["holders"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(shown["holders"][0]["fence"], acquired["fence"]);
    assert_eq!(shown["waiters"].as_array().unwrap().len(), 1, "{shown}");
    script.signal("KILL");
    assert_eq!(waiter.end().code(), 0);
    assert!(!script.end().status.success());
}

#[test]
fn the_end_of_a_wait_shows_the_present_holder() {
    let servers = servers(3);
    let first = holder(&servers, &[]);
    let mut second = Running::start(&mut at(
        &servers,
        &["exec", "-v", "-w", "4s", "--label", "second", "L", "sh", "-c", READY],
    ));
    second.told("waiting at position 1");
    let mut third = Running::start(&mut at(&servers, &["exec", "-v", "-w", "1s", "L", "true"]));
    third.told("waiting at position 2");
    // The third one gets no message about the new holder.
    first.finish();
    assert_eq!(second.line(), "READY");
    let output = third.end().exits(75);
    assert!(!output.err().contains("cannot withdraw"), "{output:?}");
    let last = output.err().lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("second") && last.contains("gave up after 1s"), "{output:?}");
    second.finish();
}
