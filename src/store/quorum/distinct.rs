//! Rejects URLs of a quorum that lead to the same server, which would then have two votes.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockAddr;

use crate::rules::Failure;
use crate::store::NEVER;
use crate::store::wire::{Endpoint, Limit, Peer};
use crate::system::thread;

/// Checks that no two servers share an address. `timeout` bounds the name lookups; a name that is
/// not resolved in time proves nothing.
///
/// # Errors
///
/// Two servers are the same.
pub(super) fn require_distinct(servers: &[Peer], timeout: Duration) -> Result<(), Failure> {
    // Start all lookups before awaiting the first.
    let lookups: Vec<_> = servers.iter().map(|it| start_lookup(it, servers, timeout)).collect();
    let found: Vec<_> = servers.iter().zip(lookups).map(found).collect();
    for (number, server) in servers.iter().enumerate() {
        let is_same = |other: &usize| found[*other].iter().any(|it| found[number].contains(it));
        if let Some(other) = (0..number).find(is_same) {
            let other = &servers[other];
            let what = format!("{other} and {server} are the same server");
            return Err(Failure::misconfigured(what, "list it once"));
        }
    }
    Ok(())
}

/// Starts a lookup of the addresses of a host.
fn start_lookup(
    server: &Peer,
    servers: &[Peer],
    timeout: Duration,
) -> Option<JoinHandle<Vec<SockAddr>>> {
    let Endpoint::Tcp { port, .. } = server.endpoint else { return None };
    let has_port =
        |it: &&Peer| matches!(it.endpoint, Endpoint::Tcp { port: its, .. } if its == port);
    if servers.iter().filter(has_port).count() < 2 {
        // No other server has this port, so none can be the same.
        return None;
    }
    let server = server.clone();
    thread::start("resolver", move || addresses_of(&server, timeout)).ok()
}

fn found((server, lookup): (&Peer, Option<JoinHandle<Vec<SockAddr>>>)) -> Vec<SockAddr> {
    match (&server.endpoint, lookup) {
        (Endpoint::Unix(_), _) => addresses_of(server, Duration::ZERO),
        // A panic aborts the process, so this default is never used.
        (_, Some(lookup)) => lookup.join().unwrap_or_default(),
        (_, None) => Vec::new(),
    }
}

fn addresses_of(server: &Peer, timeout: Duration) -> Vec<SockAddr> {
    let found = server.route.addresses(&server.endpoint, Limit::of_attempt(timeout, NEVER));
    let canonical = |it: SockAddr| match it.as_socket() {
        Some(tcp) => SocketAddr::new(tcp.ip().to_canonical(), tcp.port()).into(),
        None => it,
    };
    found.unwrap_or_default().into_iter().map(canonical).collect()
}
