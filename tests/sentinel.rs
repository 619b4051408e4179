//! Sentinel: after a failover the new master has the lock, or its holder learns of the loss.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Instant;

use crate::support::acl::{TO_INSPECT, as_ci, rule, set_up};
use crate::support::sentinels::Service;
use crate::support::{Finished, LongerWait, READY, Running, rlock, run, until};

/// Sets the number of failovers, for longer runs.
const ROUNDS_VARIABLE: &str = "RLOCK_TEST_ROUNDS";

/// The options with which a lock survives a failover that begins right after the grant.
const SURE: [&str; 4] = ["--min-replicas", "1", "--io-timeout", "4s"];

fn on(service: &Service, arguments: &[&str]) -> Command {
    let mut command = rlock(arguments);
    command.env("RLOCK_URL", service.url());
    command
}

fn holds(service: &Service, port: u16, name: &str) -> bool {
    service.server(port).cli(&["EXISTS", &format!("rlock:{name}")]) == "1"
}

#[test]
fn a_lock_is_on_the_master_that_the_sentinels_name() {
    let service = Service::start(1, &[], &[]);
    let output =
        run(&mut on(&service, &["exec", "-v", "L", "echo", "done"])).exits(0).prints("done");
    let told = format!("127.0.0.1:{} is the master", service.master_port());
    assert!(output.err().contains(&told), "{output:?}");

    let token = run(&mut on(&service, &["acquire", "L"])).out();
    assert!(holds(&service, service.master_port(), "L"));
    assert!(run(&mut on(&service, &["inspect"])).out().contains("L  "));
    assert_eq!(run(&mut on(&service, &["renew", "L", &token])).code(), 0);
    assert_eq!(run(&mut on(&service, &["release", "L", &token])).code(), 0);
    assert_eq!(run(&mut on(&service, &["inspect", "L"])).code(), 1);
}

#[test]
fn the_documented_acl_rule_is_sufficient() {
    let service = Service::start(0, &[], &[]);
    set_up(&service.servers()[0], &rule(&[&TO_INSPECT[..], &["+role"]].concat()));
    let output = as_ci(&mut on(&service, &["exec", "L", "true"]));
    assert_eq!(output.code(), 0, "{output:?}");
    assert_eq!(as_ci(&mut on(&service, &["inspect"])).code(), 0);
    set_up(&service.servers()[0], &rule(&[]));
    service.servers()[0].cli(&["ACL", "SETUSER", "ci", "-role"]);
    let output = as_ci(&mut on(&service, &["exec", "L", "true"]));
    assert_eq!(output.code(), 78, "{output:?}");
    assert!(output.err().contains("role"), "{output:?}");
}

#[test]
fn a_release_survives_a_failover() {
    let mut service = Service::start(1, &[], &[]);
    let exec = [&["exec"], &SURE[..], &["--ttl", "60s", "L", "sh", "-c", READY]].concat();
    let mut first = Running::start(&mut on(&service, &exec)).prints_first("READY");
    let old = service.master_port();
    service.master().kill();
    first.say("");
    assert_eq!(first.finish().code(), 0);
    service.await_failover(old);
    assert!(!holds(&service, service.master_port(), "L"));
}

#[test]
fn a_command_does_not_run_unlocked_while_a_sentinel_answers() {
    let mut service = Service::start(0, &[], &[]);
    let exec = ["exec", "--io-timeout", "300ms", "--on-unreachable", "run", "L", "true"];
    service.master().signal("STOP");
    run(&mut on(&service, &exec)).exits(69);
    for sentinel in 0..3 {
        service.signal_sentinel(sentinel, "KILL");
    }
    run(&mut on(&service, &exec)).exits(0).says("running the command without a lock");
}

#[test]
fn a_frozen_or_dead_sentinel_delays_nothing() {
    let service = Service::start(0, &[], &[]);
    service.signal_sentinel(0, "STOP");
    service.signal_sentinel(1, "KILL");
    let mut longer = LongerWait::of("20s");
    let exec = ["exec", "-v", "--ttl", "240s", "--io-timeout", "60s", "L", "true"];
    let output = run(&mut on(&service, &exec));
    longer.is_not_over();
    assert_eq!(output.code(), 0, "{output:?}");
    let told = format!("sentinel {}: ", service.address_of_sentinel(2));
    assert!(output.err().contains(&told), "{output:?}");
    service.signal_sentinel(0, "CONT");
}

#[test]
fn a_sentinel_that_names_a_replica_does_not_matter_beside_others() {
    let service = Service::start(1, &[], &[]);
    let replica = service.servers()[1].port().to_string();
    service.ask(0, &["SENTINEL", "REMOVE", "svc"]);
    service.ask(0, &["SENTINEL", "MONITOR", "svc", "127.0.0.1", &replica, "2"]);
    for _ in 0..5 {
        run(&mut on(&service, &["exec", "L", "true"])).exits(0);
    }
}

#[test]
fn frozen_sentinels_cost_one_timeout_in_all() {
    let service = Service::start(0, &[], &[]);
    (0..3).for_each(|sentinel| service.signal_sentinel(sentinel, "STOP"));
    let mut longer = LongerWait::of("8s");
    let started = Instant::now();
    let output = run(&mut on(&service, &["exec", "--io-timeout", "3s", "L", "true"]));
    longer.is_not_over();
    assert!(started.elapsed().as_secs() >= 3, "{output:?}");
    assert_eq!(output.code(), 69, "{output:?}");
    assert!(
        output.err().contains("no sentinel returned the master's address (3 asked)"),
        "{output:?}"
    );
    (0..3).for_each(|sentinel| service.signal_sentinel(sentinel, "CONT"));
}

#[test]
fn a_signal_ends_the_search_for_a_sentinel() {
    let service = Service::start(0, &[], &[]);
    (0..3).for_each(|sentinel| service.signal_sentinel(sentinel, "STOP"));
    let mut longer = LongerWait::of("20s");
    let exec = ["exec", "--ttl", "240s", "--io-timeout", "60s", "L", "true"];
    let searching = Running::start(&mut on(&service, &exec));
    let tasks = format!("/proc/{}/task", searching.process.id());
    until("all sentinels are asked", || {
        std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > 2)
    });
    searching.signal("TERM");
    assert_eq!(searching.end().status.signal(), Some(15));
    longer.is_not_over();
    (0..3).for_each(|sentinel| service.signal_sentinel(sentinel, "CONT"));
}

#[test]
fn the_only_answer_from_a_sentinel_determines_the_error() {
    let service = Service::start(0, &[], &[]);
    service.signal_sentinel(0, "STOP");
    service.signal_sentinel(1, "KILL");
    let mut command = rlock(["exec", "--io-timeout", "1s", "L", "true"]);
    run(command.env("RLOCK_URL", service.url().replace("svc", "other")))
        .exits(78)
        .says("does not know service 'other'");
    service.signal_sentinel(0, "CONT");
}

#[test]
fn an_unknown_service_or_a_missing_password_exits_with_78() {
    let service = Service::start(
        0,
        &["--requirepass", "of the master"],
        &["requirepass sentinels", "sentinel auth-pass svc \"of the master\""],
    );
    let with = |sentinel: &str, master: &str, url: &str| {
        let mut command = rlock(["exec", "L", "true"]);
        command.env("RLOCK_URL", url).env("RLOCK_SENTINEL_PASSWORD", sentinel);
        run(command.env("RLOCK_PASSWORD", master))
    };
    let url = service.url();
    let output = with("", "of the master", &url);
    assert_eq!(output.code(), 78, "{output:?}");
    assert!(output.err().contains("RLOCK_SENTINEL_PASSWORD"), "{output:?}");
    let output = with("sentinels", "", &url);
    assert_eq!(output.code(), 78, "{output:?}");
    assert!(output.err().contains("set RLOCK_PASSWORD"), "{output:?}");
    let output = with("sentinels", "of the master", &url.replace("svc", "other"));
    assert_eq!(output.code(), 78, "{output:?}");
    assert!(output.err().contains("does not know service 'other'"), "{output:?}");
    assert_eq!(with("sentinels", "of the master", &url).code(), 0);
    let file = service.servers()[0].directory().join("password");
    std::fs::write(&file, "sentinels\n").unwrap();
    let mut command = on(&service, &["exec", "L", "true"]);
    command.env("RLOCK_SENTINEL_PASSWORD_FILE", file).env("RLOCK_PASSWORD", "of the master");
    assert_eq!(run(&mut command).code(), 0);
}

#[test]
fn a_waiter_keeps_its_position_and_a_holder_its_lock_through_a_failover() {
    let mut service = Service::start(1, &[], &[]);
    let exec = [&["exec", "--ttl", "30s"], &SURE[..], &["L", "sh", "-c", READY]].concat();
    let holder = Running::start(&mut on(&service, &exec)).prints_first("READY");
    let enter = ["exec", "--ttl", "6s", "L", "echo", "ENTERED"];
    let mut waiter = Running::start(&mut on(&service, &enter));
    waiter.told("waiting at position 1");
    let script = run(&mut on(&service, &[&["acquire"], &SURE[..], &["M"]].concat())).out();

    let master = service.master_port();
    service.master().kill();
    service.await_failover(master);

    waiter.told("still waiting");
    assert_eq!(run(&mut on(&service, &["release", "M", &script])).code(), 0);
    waiter.told("the server is answering again");
    let inspected = run(&mut on(&service, &["inspect", "--json", "L"])).out();
    assert!(inspected.contains("\"state\":\"held\""), "{inspected}");
    holder.finish().exits(0);
    waiter.end().exits(0).prints("ENTERED");
}

#[test]
fn commands_that_start_during_a_failover_and_wait_all_run() {
    let mut service = Service::start(1, &[], &[]);
    let old = service.master_port();
    service.master().kill();
    let start = |number: usize| {
        let exec = ["exec", "-w", "30s", &format!("L{}", number % 2), "echo", "RUNS"];
        Running::start(&mut on(&service, &exec))
    };
    let before: Vec<Running> = (0..4).map(start).collect();
    until("a sentinel names another master", || service.master_port() != old);
    let after: Vec<Running> = (4..8).map(start).collect();
    for exec in before.into_iter().chain(after) {
        exec.end().exits(0).prints("RUNS");
    }
}

#[test]
fn a_holder_of_a_short_lease_keeps_it_when_the_master_freezes() {
    let service = Service::start(2, &[], &[]);
    // A replica that has just connected takes a second to confirm anything.
    let sure = [&["exec"], &SURE[..], &["M", "true"]].concat();
    until("the replicas confirm", || run(&mut on(&service, &sure)).code() == 0);
    let exec = ["exec", "-v", "--ttl", "10s", "--min-replicas", "1", "L", "sh", "-c", READY];
    let mut holder = Running::start(&mut on(&service, &exec)).prints_first("READY");
    let old = service.master_port();
    service.server(old).signal("STOP");
    service.await_failover(old);
    let fence = |port| service.server(port).cli(&["HGET", "{rlock:L}?state", "fence"]);
    let (new, first) = (service.master_port(), fence(service.master_port()));
    // A third of the lease apart.
    for _ in 0..4 {
        holder.told("] renewed for");
    }
    assert!(holds(&service, new, "L") && fence(new) == first);
    holder.say("");
    holder.finish().exits(0);
    service.server(old).signal("CONT");
}

#[test]
fn a_holder_whose_lock_the_new_master_does_not_have_is_told() {
    let mut service = Service::start(1, &[], &[]);
    let exec = ["exec", "--ttl", "9s", "--io-timeout", "500ms", "L", "sh", "-c", READY];
    let mut holder = Running::start(&mut on(&service, &exec)).prints_first("READY");
    let master = service.master_port();
    service.master().kill();
    service.await_failover(master);
    // As if the replica had not received it in time.
    service.master().cli(&["FLUSHALL"]);
    let told = holder.told("; stopping the command");
    assert_eq!(holder.end().code(), 76, "{told}");
}

#[test]
fn no_client_acts_on_a_demoted_master() {
    let service = Service::start(1, &[], &[]);
    // Without SURE, because no replica is left to confirm a renewal.
    let exec = ["exec", "--ttl", "6s", "--io-timeout", "300ms", "L", "sh", "-c", READY];
    let holder = Running::start(&mut on(&service, &exec)).prints_first("READY");
    let old = service.master_port();
    let replica = service.servers().iter().find(|server| server.port() != old).unwrap();
    until("the replica has the lock", || replica.cli(&["EXISTS", "rlock:L"]) == "1");
    service.server(old).signal("STOP");
    service.await_failover(old);
    let new = service.master_port();
    // It still acts as the master until the sentinels demote it.
    service.server(old).signal("CONT");
    let token = run(&mut on(&service, &["acquire", "M"])).out();
    assert!(holds(&service, new, "M") && !token.is_empty());
    assert_eq!(holder.finish().code(), 0);
    assert!(!holds(&service, new, "L"));
}

#[test]
fn a_replaced_master_cannot_renew_if_all_replicas_must_confirm() {
    let service = Service::start(2, &[], &[]);
    let hold = |count: &str, name: &str| {
        let sure = ["exec", "--ttl", "6s", "--min-replicas", count, name];
        // A replica that has just connected takes a second to confirm anything.
        let mut try_it = || run(&mut on(&service, &[&sure[..], &["true"]].concat())).code() == 0;
        until("the replicas confirm", &mut try_it);
        let exec = [&sure[..1], &["-v"], &sure[1..], &["sh", "-c", READY]].concat();
        Running::start(&mut on(&service, &exec)).prints_first("READY")
    };
    let (mut one, mut all) = (hold("1", "L"), hold("2", "M"));
    // So does a failover begin, and the master does not notice if it is only slow.
    let master = service.master_port();
    let replica = service.servers().iter().find(|server| server.port() != master).unwrap();
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    one.told("] renewed for");
    all.told("not renewed: 1 of 2 replicas");
}

#[test]
fn locks_that_all_replicas_have_confirmed_survive_every_failover() {
    // With fewer, a sentinel may promote the one that has not confirmed.
    let sure = ["--min-replicas", "2", "--io-timeout", "4s"];
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(3, |rounds| rounds.parse().unwrap());
    let mut service = Service::start(2, &[], &[]);
    for round in 0..rounds {
        let name = format!("L{round}");
        let old = service.master_port();
        // The answer is the last act of the old master.
        let acquire = [&["acquire", "--ttl", "60s"], &sure[..], &[&name]].concat();
        let output = run(&mut on(&service, &acquire));
        service.master().kill();
        assert_eq!(output.code(), 0, "round {round}: {output:?}");
        service.await_failover(old);
        assert!(holds(&service, service.master_port(), &name), "round {round}");
        let renew = ["renew", "--ttl", "1s", &name, &output.out()];
        until("it can be renewed", || run(&mut on(&service, &renew)).code() == 0);
        service.start_as_replica(old);
        service.await_replicas();
    }
}
