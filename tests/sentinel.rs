//! Sentinel: after a failover the new master has the lock, or its holder learns of the loss.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use crate::support::*;

/// The options with which a lock survives a failover that begins right after the grant.
const SURE: &str = "--min-replicas 1 --io-timeout 4s";

fn on(service: &Service) -> Client {
    Client::of(service.url())
}

/// Waits until this many replicas confirm a lock. One that has just connected takes a second for it.
fn replicas_confirm(service: &Service, count: usize) {
    let sure = format!("exec --min-replicas {count} M true");
    until("the replicas confirm", || on(service).run(&sure).code() == 0);
}

#[test]
fn a_lock_is_on_the_master_that_most_sentinels_name() {
    let service = Service::start(1, &[], &[]);
    let client = on(&service);
    let output = client.run("exec -v L echo done").exits(0).prints("done");
    let told = format!("127.0.0.1:{} is the master", service.master_port());
    assert!(output.err().contains(&told), "{output:?}");

    let token = client.acquire("L");
    assert!(service.server(service.master_port()).has("L"));
    assert!(client.run("inspect").out().contains("L  "));
    for act in ["renew", "release"] {
        client.run(&format!("{act} L {token}")).exits(0);
    }
    client.run("inspect L").exits(1);

    // One of them names a replica.
    let replica = service.servers()[1].port().to_string();
    service.ask(0, &["SENTINEL", "REMOVE", "svc"]);
    service.ask(0, &["SENTINEL", "MONITOR", "svc", "127.0.0.1", &replica, "2"]);
    for _ in 0..5 {
        client.run("exec L true").exits(0);
    }
}

#[test]
fn the_documented_acl_rule_is_sufficient() {
    let service = Service::start(0, &[], &[]);
    let server = &service.servers()[0];
    set_up(server, &rule("ci", &["+scan", "+role"]));
    let ci = on(&service).with_user("ci");
    for line in ["exec L true", "inspect"] {
        ci.run(line).exits(0);
    }
    server.cli(&["ACL", "SETUSER", "ci", "-role"]);
    ci.run("exec L true").exits(78).says("role");
}

#[test]
fn a_frozen_or_dead_sentinel_delays_nothing_and_the_only_answer_determines_the_error() {
    let service = Service::start(0, &[], &[]);
    for line in ["exec L true", "inspect"] {
        let sentinel = Client::of(format!("redis://{}", service.address_of_sentinel(0)));
        let url = format!("redis+sentinel://{}/SERVICE", service.address_of_sentinel(0));
        sentinel.run(line).exits(78).says(&format!(" {url} if this is a sentinel"));
    }
    service.signal_sentinel(0, "STOP");
    service.signal_sentinel(1, "KILL");
    let mut longer = LongerWait::of("20s");
    let output = on(&service).run("exec -v --ttl 240s --io-timeout 60s L true").exits(0);
    longer.is_not_over();
    output.says(&format!("sentinel {}: ", service.address_of_sentinel(2)));
    Client::of(service.url().replace("svc", "other"))
        .run("exec --io-timeout 1s L true")
        .exits(78)
        .says("does not know service 'other'");
    // While a sentinel answers, the command does not run without a lock.
    let exec = "exec --io-timeout 300ms --on-unreachable run L true";
    service.servers()[0].signal("STOP");
    on(&service).run(exec).exits(69);
    service.signal_sentinel(2, "KILL");
    on(&service).run(exec).exits(0).says("running the command without a lock");
}

#[test]
fn a_dead_master_that_the_sentinels_still_name_is_said_to_be_so() {
    let mut service = Service::start(0, &[], &[]);
    service.master().kill();
    for line in ["exec L true", "inspect", "inspect L"] {
        on(&service).run(line).exits(69).says(
            "connection refused, and the sentinels have not replaced it yet; \
             wait for a failover, or check SENTINEL MASTER svc on a sentinel",
        );
    }
}

#[test]
fn a_new_master_with_another_password_ends_no_wait_and_is_not_said_to_have_served() {
    let mut service = Service::start(1, &[], &[]);
    replicas_confirm(&service, 1);
    let old = service.master_port();
    // The replica has its own password for this user.
    for server in service.servers() {
        let password = if server.port() == old { ">secret" } else { ">other" };
        server.cli(&["ACL", "SETUSER", "ci", "on", password, "~*", "+@all"]);
    }
    let holder = on(&service).holder(&format!("--ttl 60s {SURE} L"));
    let waiter = on(&service).with_user("ci").waiter("--ttl 6s L");
    service.master().kill();
    service.await_failover(old);
    until("the new master has rejected it", || {
        service.master().cli(&["ACL", "LOG"]).contains("ci")
    });
    service.master().cli(&["ACL", "SETUSER", "ci", ">secret"]);
    holder.finish().exits(0);
    let told = waiter.end().exits(0).prints("ENTERED").err();
    assert!(!told.contains("but served as a master"), "{told}");
}

#[test]
fn a_signal_ends_a_search_for_the_master() {
    let service = Service::start(0, &[], &[]);
    (0..3).for_each(|sentinel| service.signal_sentinel(sentinel, "STOP"));
    on(&service)
        .run("exec --io-timeout 300ms L true")
        .exits(69)
        .says("no sentinel returned the address of the master of svc (3 asked)");
    let searching = on(&service).start("exec --ttl 240s --io-timeout 60s L true");
    let tasks = format!("/proc/{}/task", searching.process.id());
    until("all sentinels are asked", || {
        std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > 2)
    });
    let mut longer = LongerWait::of("20s");
    assert_eq!(searching.ends_by("TERM").status.signal(), Some(15));
    longer.is_not_over();
}

#[test]
fn a_missing_password_exits_with_78() {
    let service = Service::start(
        0,
        &["--requirepass", "of the master"],
        &["requirepass sentinels", "sentinel auth-pass svc \"of the master\""],
    );
    let with = |sentinels: &str, master: &str| {
        let client = on(&service).with("RLOCK_SENTINEL_PASSWORD", sentinels);
        client.with("RLOCK_PASSWORD", master).run("exec L true")
    };
    with("", "of the master").exits(78).says("RLOCK_SENTINEL_PASSWORD");
    with("sentinels", "").exits(78).says("set RLOCK_PASSWORD");
    with("sentinels", "of the master").exits(0);
    let file = service.servers()[0].directory().join("password");
    std::fs::write(&file, "sentinels\n").unwrap();
    let client = on(&service).with("RLOCK_SENTINEL_PASSWORD_FILE", file.to_str().unwrap());
    client.with("RLOCK_PASSWORD", "of the master").run("exec L true").exits(0);
}

/// One of three names a dead server, and answers before the others.
#[test]
fn a_sentinel_that_is_wrong_stops_nobody_while_another_is_right() {
    let service = Service::start(0, &[], &[]);
    let far =
        [1, 2].map(|number| Proxy::to(service.port_of_sentinel(number), Duration::from_millis(60)));
    let address = |proxy: &Proxy| proxy.url().split_once("//").unwrap().1.to_owned();
    let near = service.address_of_sentinel(0);
    let url = format!("redis+sentinel://{near},{},{}/svc", address(&far[0]), address(&far[1]));
    let client = Client::of(url).with("RLOCK_TTL", "6s");
    let holder = client.holder("L");
    let waiter = client.waiter("L");
    service.ask(0, &["SENTINEL", "REMOVE", "svc"]);
    let nowhere = free_port().to_string();
    service.ask(0, &["SENTINEL", "MONITOR", "svc", "127.0.0.1", &nowhere, "2"]);
    client.run("exec -n M true").exits(0);
    client.sees_a_renewal();
    holder.finish().exits(0);
    waiter.end().exits(0);
}

#[test]
fn a_service_that_a_sentinel_has_forgotten_is_awaited_once_it_was_served() {
    let service = Service::start(0, &[], &[]);
    let url = format!("redis+sentinel://{}/svc", service.address_of_sentinel(0));
    let client = Client::of(url).with("RLOCK_TTL", "3s");
    let holder = client.holder("L");
    let waiter = client.waiter("L");
    let master = service.master_port().to_string();
    service.ask(0, &["SENTINEL", "REMOVE", "svc"]);
    client.run("exec -n L true").exits(78).says("does not know service 'svc'");
    let mut waiter = waiter.tells("does not know service 'svc'");
    service.ask(0, &["SENTINEL", "MONITOR", "svc", "127.0.0.1", &master, "2"]);
    waiter.told("the server is answering again");
    holder.finish().exits(0);
    waiter.end().exits(0);
}

#[test]
fn through_a_failover_locks_are_kept_waiters_stay_and_new_commands_and_releases_wait() {
    let mut service = Service::start(1, &[], &[]);
    let client = on(&service);
    let holder = client.holder(&format!("--ttl 60s {SURE} L"));
    let mut waiter = client.waiter("--ttl 6s L");
    let ending = client.holder(&format!("--ttl 60s {SURE} M"));
    // The answer is the last act of the old master.
    let token = client.acquire(&format!("{SURE} N"));
    let old = service.master_port();
    service.master().kill();
    let start = |()| client.start("exec -w 30s M echo RUNS");
    let before = [(); 3].map(start);
    ending.finish().exits(0);
    until("a sentinel names another master", || service.master_port() != old);
    let after = [(); 3].map(start);
    for exec in before.into_iter().chain(after) {
        exec.end().exits(0).prints("RUNS");
    }
    waiter.told("still waiting");
    client.run(&format!("release N {token}")).exits(0);
    waiter.told("the server is answering again");
    assert_eq!(client.inspect("L")["state"], "held");
    holder.finish().exits(0);
    waiter.end().exits(0).prints("ENTERED");
}

#[test]
fn a_holder_keeps_its_lock_when_the_master_freezes_and_nobody_uses_the_old_one_later() {
    let service = Service::start(2, &[], &[]);
    replicas_confirm(&service, 1);
    let mut holder = on(&service).holder("-v --ttl 8s --min-replicas 1 L");
    let old = service.master_port();
    service.server(old).signal("STOP");
    service.await_failover(old);
    let new = service.server(service.master_port());
    let fence = || new.cli(&["HGET", &side_key("L", "state"), "fence"]);
    let first = fence();
    // The first line may be older than the failover.
    for _ in 0..2 {
        holder.told("] renewed for");
    }
    assert!(new.has("L") && fence() == first);
    // It still acts as the master until the sentinels demote it.
    service.server(old).signal("CONT");
    on(&service).acquire("M");
    assert!(new.has("M"));
    holder.finish().exits(0);
    assert!(!new.has("L"));
}

#[test]
fn a_replaced_master_cannot_renew_if_all_replicas_must_confirm() {
    let service = Service::start(2, &[], &[]);
    replicas_confirm(&service, 2);
    let hold = |count: usize, name: &str| {
        on(&service).holder(&format!("-v --ttl 6s --min-replicas {count} {name}"))
    };
    let (mut one, mut all) = (hold(1, "L"), hold(2, "M"));
    // So does a failover begin, and the master does not notice if it is only slow.
    let master = service.master_port();
    let replica = service.servers().iter().find(|server| server.port() != master).unwrap();
    replica.promote();
    one.told("] renewed for");
    all.told("not renewed: 1 of 2 replicas");
}
