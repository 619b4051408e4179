//! What rlock sends over the wire, and nothing more.

use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{Finished, Server, rlock, run};

#[test]
fn an_uncontended_exec_is_one_connection_and_two_flights() {
    let server = Server::on_tcp(&["--requirepass", "pw"]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let exec = || {
        let url = proxy.url().replace("redis://", "redis://:pw@") + "/5";
        let output = run(rlock(["exec", "L", "true"]).env("RLOCK_URL", url));
        assert_eq!(output.code(), 0, "{output:?}");
    };
    // Each script is sent in full once.
    exec();
    assert_eq!((proxy.connections(), proxy.flights()), (1, 4));
    exec();
    assert_eq!((proxy.connections(), proxy.flights()), (2, 6));
}

#[test]
fn a_server_receives_only_the_commands_that_are_needed() {
    let server = Server::start();
    run(&mut server.rlock(["exec", "L", "true"]));
    server.cli(&["CONFIG", "RESETSTAT"]);
    run(&mut server.rlock(["exec", "L", "true"]));
    assert_eq!(server.calls_of("evalsha"), 2);
    for needless in ["client|setinfo", "hello", "ping", "select", "eval", "auth", "blpop"] {
        assert_eq!(server.calls_of(needless), 0, "{needless}");
    }
}
