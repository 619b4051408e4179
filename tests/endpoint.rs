//! One name that a provider moves, in a failover.

use crate::support::*;

fn client(name: &Endpoint) -> Client {
    Client::of(name.url()).with("RLOCK_TTL", "3s")
}

#[test]
fn a_failover_behind_one_name_harms_no_client_whose_hold_the_new_master_has() {
    for old in [Old::Demoted, Old::Cut, Old::WithoutReplicas] {
        let name = Endpoint::start();
        let client = client(&name);
        let holder = client.holder("L");
        let waiter = client.waiter("L");
        let tokens = ["A", "B", "C"].map(|lock| client.acquire(lock));
        name.fails_over(old);
        let at_new = Client::of(name.replica.url());
        at_new.sees_a_renewal();
        assert_eq!(at_new.inspect("L")["waiters"].as_array().unwrap().len(), 1, "{old:?}");
        client.run(&format!("renew --ttl 30s A {}", tokens[0])).exits(0);
        client.run(&format!("release B {}", tokens[1])).exits(0);
        client.run("release --force --now C").exits(0);
        holder.finish().exits(0);
        waiter.end().exits(0).prints("ENTERED");
        assert_eq!(at_new.run("inspect --names").out(), "A", "{old:?}");
    }
}

#[test]
fn a_hold_that_the_new_master_never_received_is_lost_at_the_next_renewal() {
    let name = Endpoint::start();
    name.replica.promote();
    let holder = client(&name).holder("L");
    name.fails_over(Old::Demoted);
    holder.end().exits(76).says("the lock was forgotten by the server");
}

#[test]
fn a_replica_behind_the_name_ends_no_hold_and_a_wait_with_a_limit_outlasts_it() {
    let name = Endpoint::start();
    // It has none of the locks, and answers from its own data.
    name.replica.promote();
    name.replica.cli(&["FLUSHALL"]);
    name.replica.follows(1);
    let client = client(&name);
    let holder = client.holder("-v --ttl 20s --kill-after 100ms L");
    let token = client.acquire("--ttl 30s A");
    name.leads_to(&name.replica);
    name.master.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let waiter = client.start("exec -w 1m B true").tells("is a replica; retrying");
    client.run("exec -n B true").exits(78).says("is a replica; use the address of the master");
    let holder = holder.tells("not renewed: ");
    let released = client.start(&format!("release A {token}")).tells("not released yet: ");
    name.leads_to(&name.master);
    waiter.end().exits(0).says("the server is answering again");
    released.end().exits(0);
    holder.finish().exits(0);
}

#[test]
fn a_waiter_behind_a_proxy_without_blpop_polls_and_says_so() {
    let server = Server::with(&["--rename-command", "BLPOP", ""]);
    let client = Client::of(server.url()).with("RLOCK_TTL", "3s");
    let holder = client.holder("L");
    server.cli(&["CONFIG", "RESETSTAT"]);
    let limited = client.run("exec -w 5s L true").exits(75);
    let told = "does not support the command BLPOP; asking at most every 1s instead";
    assert_eq!(limited.err().matches(told).count(), 1, "{limited:?}");
    let calls = server.calls_of("evalsha") + server.calls_of("eval");
    assert!(calls <= 15, "{calls} calls in 5 s, of them 2 renewals");
    let waiter = client.start("exec L echo ENTERED").tells("asking at most every 1s");
    holder.finish().exits(0);
    waiter.end().exits(0).prints("ENTERED");
}
