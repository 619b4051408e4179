//! What a script or an operator asks of a lock is repeated while the server does not answer. The
//! answer is true even if the reply to an earlier attempt was lost.

use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{self, Finished, Running, Server, acquire, rlock, run, until, waiter};

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

/// A server that knows the scripts, so that each of them takes one flight.
fn server() -> Server {
    let server = Server::on_tcp(&[]);
    let token = acquire(&server, &[], "warm");
    let known: [&[&str]; 4] = [
        &["renew", "warm", &token],
        &["release", "--force", "--id", "ffffffff", "warm"],
        &["release", "--force", "--now", "warm"],
        &["inspect", "warm"],
    ];
    known.iter().for_each(|arguments| drop(run(&mut server.rlock(*arguments))));
    server
}

#[test]
fn a_request_of_a_script_or_an_operator_is_repeated_until_the_server_is_back() {
    let server = server();
    for (arguments, pending) in [
        (&["renew", "L", "TOKEN"][..], "not renewed yet: "),
        (&["release", "--force", "--now", "L"], "not revoked yet: "),
        (&["release", "--force", "--now", "--id", "ID", "L"], "not revoked yet: "),
        (&["release", "L", "TOKEN"], "not released yet: "),
    ] {
        let token = acquire(&server, &[], "L");
        let named = arguments.iter().map(|word| match *word {
            "TOKEN" => &token,
            "ID" => &token[..8],
            word => word,
        });
        let quick = [&named.collect::<Vec<_>>()[..], &["--io-timeout", "300ms"]].concat();
        server.signal("STOP");
        let mut asking = Running::start(&mut server.rlock(&quick));
        asking.told(pending);
        server.signal("CONT");
        asking.end().exits(0);
        assert_eq!(server.is_free("L"), arguments[0] == "release");
        run(&mut server.rlock(["release", "L", &token]));
    }
}

#[test]
fn a_forced_release_prints_and_awaits_only_what_it_revoked() {
    let servers = [server(), server(), server()];
    for server in &servers {
        server.await_uptime(4);
    }
    for (count, now) in [(1, &[][..]), (1, &["--now"]), (3, &[])] {
        let servers = &servers[..count];
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        let go = |arguments: &[&str]| {
            let mut command = rlock(arguments);
            command.env("RLOCK_URL", urls.join(" ")).env("RLOCK_TTL", "3s");
            command
        };
        let held = ["exec", "L", "sh", "-c", support::READY];
        let first = Running::start(&mut go(&held)).prints_first("READY");
        let mut second = Running::start(&mut go(&held));
        second.told("waiting at position");
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
    let token = acquire(&server, &["--ttl", "1h"], "L");
    let second = waiter(&server, &[], "L", "second; read _ || :");
    let force = ["release", "--force", "--now", "--json", "L"];
    let (wires, force) = next_flight_after(1, std::slice::from_ref(&server), &force);
    wires[0].drop_replies(true);
    until("it is revoked", || server.inspect("L")["holders"][0]["id"] != token[..8]);
    wires[0].drop_replies(false);
    let told = force.end();
    let document: serde_json::Value = serde_json::from_str(&told.out()).unwrap();
    let revoked = document["revoked"].as_array().unwrap();
    assert_eq!((told.code(), revoked.len()), (0, 1), "{told:?}");
    assert_eq!(revoked[0]["id"], token[..8]);
    second.finish().exits(0);

    // The first flight removes the client.
    let token = acquire(&server, &["--ttl", "1h"], "L");
    let force = ["release", "--force", "--now", "--id", &token[..8], "L"];
    let (wires, force) = next_flight_after(0, std::slice::from_ref(&server), &force);
    wires[0].drop_replies(true);
    until("it is revoked", || server.is_free("L"));
    wires[0].drop_replies(false);
    let told = force.end().exits(0);
    assert_eq!(told.out(), format!("L: id {} no longer holds or awaits the lock", &token[..8]));
}

#[test]
fn a_forced_release_survives_an_unanswered_look() {
    let server = server();
    let force = ["release", "--force", "--io-timeout", "300ms", "L"];
    let mut stuck = support::holder_that_cleans_up(&server, "L");
    let mut forced = Running::start(&mut server.rlock(force));
    forced.told("waiting up to ");
    assert_eq!(stuck.line(), "STOPPING");
    server.signal("STOP");
    forced.told("not confirmed yet: ");
    server.signal("CONT");
    stuck.say("go");
    stuck.end().exits(76);
    forced.end().exits(0).says("released the lock");
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
    let told = exec.end();
    assert_eq!(told.code(), 79, "{told:?}");
    assert!(told.err().contains("this token's hold was revoked by "), "{told:?}");
}
