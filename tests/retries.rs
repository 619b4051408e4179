//! What a script or an operator asks of a lock is repeated while the server does not answer. The
//! answer is true even if the reply to an earlier attempt was lost.

use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{
    self, Finished, Running, Server, acquire, at, quorum, rlock, run, until, waiter,
};

/// Starts a client of these servers, lets this many flights to each of them pass, and returns while
/// the next ones are on their way.
fn next_flight_after(
    passed: usize,
    servers: &[Server],
    arguments: &[&str],
) -> (Vec<Proxy>, Running) {
    let wire = |server: &Server| Proxy::to(server.port(), Duration::from_millis(300));
    let wires: Vec<Proxy> = servers.iter().map(wire).collect();
    let urls: Vec<String> = wires.iter().map(Proxy::url).collect();
    let mut client = rlock([&arguments[..1], &["--io-timeout", "2s"], &arguments[1..]].concat());
    let client = Running::start(client.env("RLOCK_URL", urls.join(" ")));
    until("the flights are on their way", || wires.iter().all(|wire| wire.flights() > passed));
    (wires, client)
}

fn server() -> Server {
    let server = Server::on_tcp(&[]);
    warm(&server);
    server
}

/// Lets a server know the scripts, so that each of them takes one flight.
fn warm(server: &Server) {
    let token = acquire(server, &[], "warm");
    run(&mut server.rlock(["renew", "warm", &token]));
    server.run("release --force --id ffffffff warm");
    server.run("release --force --now warm");
    server.run("inspect warm");
}

#[test]
fn a_request_of_a_script_or_an_operator_is_repeated_until_the_server_is_back() {
    let server = server();
    for (line, pending) in [
        ("renew L TOKEN", "not renewed yet: "),
        ("release --force --now L", "not revoked yet: "),
        ("release --force --now --id ID L", "not revoked yet: "),
        ("release L TOKEN", "not released yet: "),
    ] {
        let token = acquire(&server, &[], "L");
        let line = line.replace("TOKEN", &token).replace("ID", &token[..8]);
        server.signal("STOP");
        let mut asking =
            Running::start(&mut at(&server.url(), &format!("{line} --io-timeout 300ms")));
        asking.told(pending);
        server.signal("CONT");
        asking.end().exits(0);
        assert_eq!(server.is_free("L"), line.starts_with("release"));
        run(&mut server.rlock(["release", "L", &token]));
    }
}

#[test]
fn a_forced_release_prints_and_awaits_only_what_it_revoked() {
    let servers = quorum::servers(3);
    servers.iter().for_each(warm);
    for (count, now) in [(1, &[][..]), (1, &["--now"]), (3, &[])] {
        let servers = &servers[..count];
        let first = quorum::at(servers).holder("L");
        let second = quorum::at(servers).exec("L", support::READY);
        let mut second = second.tells("waiting at position");
        let force = [&["release", "--force"], now, &["L"]].concat();
        let (wires, force) = next_flight_after(1, servers, &force);
        wires.iter().for_each(|wire| wire.part(true));
        first.finish().exits(0);
        assert_eq!(second.line(), "READY");
        wires.iter().for_each(|wire| wire.part(false));
        let told = force.end().exits(0).prints("");
        assert_eq!(told.err(), "rlock: L: no hold to revoke");
        assert_eq!(servers[0].inspect("L")["state"], "held");
        second.finish().exits(0);
    }
}

#[test]
fn a_revocation_whose_reply_is_lost_is_reported_and_spares_the_next_holder() {
    let server = server();
    // With --id, the first flight removes the client.
    for (passed, by_id) in [(1, false), (0, true)] {
        let token = acquire(&server, &["--ttl", "1h"], "L");
        let id = &token[..8];
        let second = waiter(&server, &[], "L", "second; read _ || :");
        let force = ["release", "--force", "--now", "--json", "L", "--id", id];
        let force = if by_id { &force[..] } else { &force[..5] };
        let (wires, force) = next_flight_after(passed, std::slice::from_ref(&server), force);
        wires[0].drop_replies(true);
        until("it is revoked", || server.inspect("L")["holders"][0]["id"] != *id);
        wires[0].drop_replies(false);
        let revoked = force.end().exits(0).json()["revoked"].clone();
        match by_id {
            true => assert_eq!(revoked, serde_json::Value::Null),
            false => assert_eq!((&revoked[0]["id"], revoked.get(1)), (&id.into(), None)),
        }
        second.finish().exits(0);
    }
}

#[test]
fn a_hold_revoked_before_its_reply_arrives_ends_the_request_as_removed() {
    let server = server();
    let wire = Proxy::to(server.port(), Duration::ZERO);
    wire.drop_replies(true);
    let exec = Running::start(rlock(["exec", "L", "true"]).env("RLOCK_URL", wire.url()));
    until("the lock is held", || server.inspect("L")["state"] == "held");
    server.run("release --force --now L").exits(0);
    wire.drop_replies(false);
    wire.cut();
    exec.end().exits(79).says("this token's hold was revoked by ");
}
