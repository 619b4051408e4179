//! A renewal counts only if enough replicas have it, whoever makes it.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use crate::support::proxy::Proxy;
use crate::support::server::options_of_a_replica;
use crate::support::{Client, Finished, Running, Server, at, run, until};

/// A master, and a replica with a wire between them.
fn with_a_far_replica() -> (Server, Proxy, Server) {
    let master = Server::on_tcp(&[]);
    let wire = Proxy::to(master.port(), Duration::ZERO);
    let port = wire.url().rsplit(':').next().unwrap().parse().unwrap();
    let options = options_of_a_replica(port);
    let replica = Server::with(&options.iter().map(String::as_str).collect::<Vec<_>>());
    until("the replica confirms", || master.run("exec -n --min-replicas 1 M true").code() == 0);
    (master, wire, replica)
}

/// How long an rlock that has just ended says that a lease lasts: renewed, or not confirmed.
fn acknowledged(document: &serde_json::Value) -> Duration {
    let left = document["ttl_ms"].as_u64().map(Duration::from_millis);
    left.unwrap_or_else(|| {
        let message = document["message"].as_str().unwrap();
        let (_, rest) = message.split_once("(the lease may expire in ").expect(message);
        humantime::parse_duration(rest.split_once(')').unwrap().0).unwrap()
    })
}

#[test]
fn a_failover_overlaps_no_lease_that_a_renewal_has_acknowledged() {
    let (master, wire, replica) = with_a_far_replica();
    let client = Client::of(master.url()).with("RLOCK_MIN_REPLICAS", "1");
    let token = client.acquire("--ttl 6s L");
    replica.signal("STOP");
    wire.part(true);
    let renew = client.run(&format!("renew --json --ttl 1m L {token}"));
    let held_until = Instant::now() + acknowledged(&renew.json());
    wire.cut();
    replica.signal("CONT");
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    run(&mut at(&replica.url(), "exec L true")).exits(0);
    assert!(Instant::now() >= held_until, "{renew:?}");
    assert_eq!(renew.exits(69).says("0 of 1 replicas").json()["status"], "unreachable");
}

#[test]
fn a_renewal_that_too_few_replicas_confirm_tells_the_lesser_of_both_leases() {
    let (master, _, replica) = with_a_far_replica();
    let token = Client::of(master.url()).acquire("--ttl 1m --min-replicas 1 L");
    let renew = |options: &str| format!("renew -v --min-replicas 1 {options} L {token}");
    master.run(&renew("")).exits(0).says("] renewed, ");
    replica.signal("STOP");
    // It is not retried beyond this lease.
    let told = master.run(&renew("--ttl 3s --json")).exits(69);
    assert!(acknowledged(&told.json()) <= Duration::from_secs(3), "{told:?}");
    assert!(!told.err().contains("] renewed"), "{told:?}");
    let mut again = Running::start(&mut at(&master.url(), &renew("--ttl 1m")));
    again.told("not renewed yet");
    replica.signal("CONT");
    again.end().exits(0).says("] renewed, expires in ");
}

/// A keeper learns the option from the rlock that starts it.
#[test]
fn a_keeper_that_too_few_replicas_confirm_stops_its_script() {
    let (master, _, replica) = with_a_far_replica();
    let acquire = "$rlock acquire --ttl 3s --while-pid $$";
    for (variable, option) in [("0", "--min-replicas 1"), ("1", "")] {
        let script = format!("t=$({acquire} {option} L) || exit; echo HELD; read _");
        let mut script = master.program("bash -c", &script);
        let script = Running::start(script.env("RLOCK_MIN_REPLICAS", variable));
        let mut script = script.prints_first("HELD");
        replica.signal("STOP");
        script.told("0 of 1 replicas");
        assert_eq!(script.end().status.signal(), Some(15));
        replica.signal("CONT");
    }
}
