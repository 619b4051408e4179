//! What a script or an operator asks of a lock is repeated while the server does not answer. The
//! answer is true even if the reply to an earlier attempt was lost.

use std::time::Duration;

use crate::support::*;

/// Starts a client of these servers, lets this many flights to each of them pass, and returns while
/// the next ones are on their way.
fn next_flight_after(passed: usize, servers: &[Server], line: &str) -> (Vec<Proxy>, Running) {
    let wire = |server: &Server| Proxy::to(server.port(), Duration::from_millis(300));
    let wires: Vec<Proxy> = servers.iter().map(wire).collect();
    let urls: Vec<String> = wires.iter().map(Proxy::url).collect();
    let line = format!("{line} --io-timeout 2s");
    let client = Running::start(&mut at(&urls.join(" "), &line));
    until("the flights are on their way", || wires.iter().all(|wire| wire.flights() > passed));
    (wires, client)
}

fn server() -> Server {
    let server = Server::on_tcp(&[]);
    server.learns_the_scripts();
    server
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
        let line = format!("{line} --io-timeout 300ms");
        let asking = Running::start(&mut at(&server.url(), &line)).tells(pending);
        server.signal("CONT");
        asking.end().exits(0);
        assert_eq!(server.is_free("L"), line.starts_with("release"));
        server.run(&format!("release L {token}"));
    }
}

#[test]
fn a_forced_release_prints_and_awaits_only_what_it_revoked() {
    let servers = quorum::servers(3);
    servers.iter().for_each(Server::learns_the_scripts);
    for (count, force) in
        [(1, "release --force L"), (1, "release --force --now L"), (3, "release --force L")]
    {
        let servers = &servers[..count];
        let first = quorum::at(servers).holder("L");
        let second = quorum::at(servers).exec("L", READY);
        let mut second = second.tells("waiting at position");
        let (wires, force) = next_flight_after(1, servers, force);
        wires.iter().for_each(|wire| wire.part(true));
        first.finish().exits(0);
        assert_eq!(second.line(), "READY");
        wires.iter().for_each(|wire| wire.part(false));
        let told = force.end().exits(0).prints("");
        assert_eq!(told.err(), "rlock: L: no hold to revoke");
        // A minority may get the hold later.
        assert_eq!(quorum::at(servers).inspect("L")["state"], "held");
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
        let by = if by_id { format!("--id {id}") } else { String::new() };
        let force = format!("release --force --now --json L {by}");
        let (wires, force) = next_flight_after(passed, std::slice::from_ref(&server), &force);
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
    let exec = Running::start(&mut at(&wire.url(), "exec L true"));
    until("the lock is held", || server.inspect("L")["state"] == "held");
    server.run("release --force --now L").exits(0);
    wire.drop_replies(false);
    wire.cut();
    exec.end().exits(79).says("this token's hold was revoked by ");
}
