//! What rlock sends over the wire, and nothing more.

use std::time::Duration;

use crate::support::*;

#[test]
fn an_uncontended_exec_takes_two_flights_an_inspection_one_and_a_list_four() {
    let server = Server::on_tcp(&["--requirepass", "pw"]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let client = Client::of(proxy.url().replace("redis://", "redis://:pw@") + "/5");
    // Each script is sent in full once.
    for (line, flights) in [
        ("exec L true", 4),
        ("exec L true", 2),
        ("acquire L", 1),
        ("inspect", 5),
        ("inspect", 4),
        ("inspect L", 1),
    ] {
        let before = (proxy.connections(), proxy.flights());
        client.run(line).exits(0);
        let after = (before.0 + 1, before.1 + flights);
        assert_eq!((proxy.connections(), proxy.flights()), after, "{line}");
    }
}

#[test]
fn a_new_head_listens_for_its_grant_and_asks_in_one_flight() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    server.learns_the_scripts();
    let first = holder(&server, &[], "L");
    let waiter = Client::of(proxy.url()).start("exec L true");
    until("it has asked and sleeps", || proxy.flights() == 2);
    let mailbox = server.mailbox("L", &server.waiters_token("L"));
    server.cli(&["RPUSH", &mailbox, "head"]);
    until("it has listened, asked and sleeps again", || proxy.flights() == 4);
    first.finish();
    waiter.end().exits(0);
    // It has claimed and released the lock.
    assert_eq!(proxy.flights(), 6);
}

#[test]
fn a_waiter_on_a_slow_link_only_withdraws_after_its_limit() {
    let server = Server::on_tcp(&[]);
    server.learns_the_scripts();
    let first = holder(&server, &[], "L");
    server.run("exec -w 100ms L true").exits(75);
    for (delay, flights) in [(300, 2), (0, 5)] {
        let proxy = Proxy::to(server.port(), Duration::from_millis(delay));
        Client::of(proxy.url()).run("exec -w 1s L true").exits(75).says("held by");
        assert_eq!(proxy.flights(), flights, "{delay}");
        until("it has left", || server.waiting("L") == 0);
    }
    first.finish();
}

#[test]
fn a_renewal_is_one_flight_on_the_same_connection() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let mut first = Client::of(proxy.url()).holder("-v --ttl 3s L");
    first.told("] renewed for");
    let before = proxy.flights();
    first.told("] renewed for");
    assert_eq!((proxy.flights(), proxy.connections()), (before + 1, 1));
    first.finish().exits(0);
}

#[test]
fn an_uncontended_exec_sends_two_scripts_and_nothing_else() {
    let server = Server::start();
    server.run("exec L true");
    server.cli(&["CONFIG", "RESETSTAT"]);
    server.run("exec L true");
    assert_eq!(server.calls_of("evalsha"), 2);
    for needless in ["client|setinfo", "hello", "ping", "select", "eval", "auth", "blpop"] {
        assert_eq!(server.calls_of(needless), 0, "{needless}");
    }
}
