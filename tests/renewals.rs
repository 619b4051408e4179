//! A renewal counts only if enough replicas have it, and the last one is tried just before the command
//! would be stopped.

use std::fs::rename;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use crate::support::*;

/// A master, and a replica with a wire between them.
fn with_a_far_replica() -> (Server, Proxy, Server) {
    let master = Server::on_tcp(&[]);
    let wire = Proxy::to(master.port(), Duration::ZERO);
    let port = wire.url().rsplit(':').next().unwrap().parse().unwrap();
    let replica = Server::start();
    replica.follows(port);
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
    replica.promote();
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
    let acquire = "$rlock acquire --ttl 5s --while-pid $$";
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

/// Long enough for seven attempts, so that an eighth, a second later, would come after the stop.
const TTL: &str = "--ttl 6800ms";

/// Fails if all of several tries fail: a host that is overloaded can be too late.
#[track_caller]
fn one_of_several(mut kept: impl FnMut() -> bool) {
    assert!((0..5).any(|_| kept()), "each time, the lock was lost");
}

/// Refuses the renewals of a holder until only the last attempt is left.
fn is_kept(client: &Client, refuse: impl Fn(bool)) -> bool {
    let mut holder = client.holder(&format!("-v {TTL} L"));
    refuse(true);
    let refused = (0..7).all(|_| holder.says_later("] not renewed: "));
    refuse(false);
    refused && holder.says_later("] renewed for 6.8s") && holder.finish().status.success()
}

/// Takes the socket of a server away, or gives it back.
fn hide(server: &Server, is_hidden: bool) {
    let (socket, away) = (server.socket(), server.directory().join("away"));
    if is_hidden {
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        rename(socket, away).unwrap();
    } else {
        rename(away, socket).unwrap();
    }
}

#[test]
fn a_server_that_is_back_just_before_the_stop_loses_nobody() {
    let server = Server::start();
    let keeper =
        format!("t=$($rlock acquire {TTL} --while-pid $$ K) || exit; echo HELD; read _ || :");
    one_of_several(|| {
        let script = Running::start(&mut server.program("bash -c", &keeper)).prints_first("HELD");
        let is_kept = is_kept(&Client::of(server.url()), |is_hidden| hide(&server, is_hidden));
        is_kept && script.finish().status.success()
    });
}

#[test]
fn a_majority_that_is_back_just_before_the_stop_loses_nobody() {
    let servers = quorum::servers(3);
    let refuse = |is_hidden| servers[1..].iter().for_each(|server| hide(server, is_hidden));
    one_of_several(|| is_kept(&quorum::at(&servers), refuse));
}

#[test]
fn sentinels_and_clusters_whose_master_is_back_just_before_the_stop_lose_nobody() {
    let refuse = |servers: &[Server], refuses| {
        let missing = if refuses { "1" } else { "0" };
        for server in servers {
            server.cli(&["CONFIG", "SET", "min-replicas-to-write", missing]);
        }
    };
    let service = Service::start(0, &[], &[]);
    let client = Client::of(service.url());
    one_of_several(|| is_kept(&client, |refuses| refuse(service.servers(), refuses)));
    let cluster = Cluster::start(3, 0);
    let client = Client::of(cluster.url());
    one_of_several(|| is_kept(&client, |refuses| refuse(cluster.nodes(), refuses)));
}

/// The server drops what asks for a connection, and the system asks again only after a second.
#[test]
fn a_connection_under_way_is_given_up_in_time_for_the_last_attempt() {
    let server = Server::on_tcp(&["--tcp-backlog", "1"]);
    let client = Client::of(server.tcp_url());
    one_of_several(|| {
        let mut holder = client.holder(&format!("-v {TTL} L"));
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        server.signal("STOP");
        let address = ([127, 0, 0, 1], server.port()).into();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        let queue: Vec<_> = std::iter::from_fn(connect).collect();
        holder.told("] not renewed: ");
        std::thread::sleep(Duration::from_millis(150));
        server.signal("CONT");
        drop(queue);
        holder.says_later("] renewed for 6.8s") && holder.finish().status.success()
    });
}

/// With this timeout, the sixth attempt is given up 400 ms before the stop, and the seventh begins
/// after it.
#[test]
fn the_reply_of_a_silent_server_is_awaited_until_the_stop_and_no_other_request_is_sent() {
    let server = Server::on_tcp(&[]);
    let wire = Proxy::to(server.port(), Duration::ZERO);
    let exec = "-v --ttl 6s --io-timeout 150ms -w 1m L";
    one_of_several(|| {
        let mut holder = Client::of(wire.url()).holder(exec);
        wire.part(true);
        if !(0..5).all(|_| holder.says_later("] not renewed: ")) {
            wire.part(false);
            return false;
        }
        let connections = wire.connections();
        until("the sixth request is on its way", || wire.connections() > connections);
        std::thread::sleep(Duration::from_millis(250));
        wire.part(false);
        let renewed = holder.says_later("] renewed for 6s");
        renewed && wire.connections() == connections + 1 && holder.finish().status.success()
    });
}
