//! Several independent servers, and `rlock` with all of them.

use std::time::Duration;

use super::proxy::Proxy;
use super::{Client, Server};

/// Servers that vote, because their clocks say that they have been up for longer than a lease.
pub fn servers(count: usize) -> Vec<Server> {
    let servers: Vec<_> = (0..count).map(|_| Server::with_clock(Duration::ZERO, &[])).collect();
    grow_old(&servers.iter().collect::<Vec<_>>());
    servers
}

/// Sets the clocks of these servers ahead, so that they have been up for longer than a lease.
pub fn grow_old(servers: &[&Server]) {
    servers.iter().for_each(|server| server.step_clock(30_000));
    servers.iter().for_each(|server| server.await_uptime(20));
}

/// rlock with these servers as a quorum, and a short lease.
pub fn at(servers: &[Server]) -> Client {
    at_urls(servers.iter().map(Server::url))
}

/// As `at`, but where some servers are, no server is.
pub fn without(servers: &[Server], masked: &[usize]) -> Client {
    let url = |(number, server): (usize, &Server)| match masked.contains(&number) {
        true => format!("unix:///nowhere/{number}"),
        false => server.url(),
    };
    at_urls(servers.iter().enumerate().map(url))
}

/// Wires to these servers, each with its delay, and rlock behind them.
pub fn far<const N: usize>(servers: &[Server], delays: [u64; N]) -> ([Proxy; N], Client) {
    let mut servers = servers.iter();
    let wires =
        delays.map(|delay| Proxy::to(servers.next().unwrap().port(), Duration::from_millis(delay)));
    let client = at_urls(wires.iter().map(Proxy::url));
    (wires, client)
}

pub fn at_urls(urls: impl Iterator<Item = String>) -> Client {
    Client::of(urls.collect::<Vec<_>>().join(" ")).with("RLOCK_TTL", "2s")
}

/// How many servers have a hold that blocks other clients.
pub fn having(servers: &[Server], name: &str) -> usize {
    servers.iter().filter(|server| server.has(name)).count()
}
