//! What rlock sends over the wire, and nothing more.

use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{Finished, Running, Server, at, run, until};

#[test]
fn an_uncontended_exec_is_one_connection_and_two_flights() {
    let server = Server::on_tcp(&["--requirepass", "pw"]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let url = proxy.url().replace("redis://", "redis://:pw@") + "/5";
    // Each script is sent in full once.
    for (connections, flights) in [(1, 4), (2, 6)] {
        run(&mut at(&url, "exec L true")).exits(0);
        assert_eq!((proxy.connections(), proxy.flights()), (connections, flights));
    }
}

#[test]
fn a_new_head_listens_for_its_grant_and_asks_in_one_flight() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    // The server learns the scripts.
    server.run("exec L true");
    let token = server.run("acquire L").out();
    let mut waiter = Running::start(&mut at(&proxy.url(), "exec L true"));
    until("it has asked and sleeps", || proxy.flights() == 2);
    let mailbox = server.mailbox("L", &server.waiters_token("L"));
    server.cli(&["RPUSH", &mailbox, "head"]);
    until("it has listened, asked and sleeps again", || proxy.flights() == 4);
    run(&mut server.rlock(["release", "L", &token]));
    assert_eq!(waiter.process.wait().unwrap().code(), Some(0));
    // It has claimed and released the lock.
    assert_eq!(proxy.flights(), 6);
}

#[test]
fn a_list_with_a_password_is_one_connection_and_two_flights() {
    let server = Server::on_tcp(&["--requirepass", "pw"]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let url = |url: String| url.replace("redis://", "redis://:pw@");
    for lock in ["A", "B"] {
        run(&mut at(&url(server.tcp_url()), &format!("acquire -q {lock}"))).exits(0);
    }
    for flights in [3, 2] {
        let before = (proxy.connections(), proxy.flights());
        run(&mut at(&url(proxy.url()), "inspect")).exits(0).shows("2 locks");
        assert_eq!((proxy.connections(), proxy.flights()), (before.0 + 1, before.1 + flights));
    }
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
