//! Rejects URLs of a quorum that lead to the same server, which would then have two votes.

use std::fs::canonicalize;
use std::net::IpAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::store::wire::{Address, Endpoint, addresses_of};
use crate::system::thread;

/// Where a server listens, as far as this host can tell.
#[derive(PartialEq, Eq)]
enum Listener {
    Tcp(IpAddr, u16),
    Unix(PathBuf),
}

/// Checks that no two servers share an address. `timeout` bounds the name lookups; a name that is
/// not resolved in time proves nothing.
///
/// # Errors
///
/// One line that names two servers that are the same.
pub(super) fn require_distinct(servers: &[Address], timeout: Duration) -> Result<(), String> {
    // Start all lookups before awaiting the first.
    let lookups: Vec<_> = servers.iter().map(|it| start_lookup(it, servers, timeout)).collect();
    let listeners: Vec<_> = servers.iter().zip(lookups).map(listeners_of).collect();
    for (number, server) in servers.iter().enumerate() {
        let is_same =
            |other: &usize| listeners[*other].iter().any(|l| listeners[number].contains(l));
        if let Some(other) = (0..number).find(is_same) {
            let other = &servers[other];
            return Err(format!("{other} and {server} are the same server; list it once"));
        }
    }
    Ok(())
}

/// Starts a lookup of the addresses of a host.
fn start_lookup(
    server: &Address,
    servers: &[Address],
    timeout: Duration,
) -> Option<JoinHandle<Vec<Listener>>> {
    let Endpoint::Tcp { host, port } = server.endpoint.clone() else { return None };
    let has_port =
        |it: &&Address| matches!(it.endpoint, Endpoint::Tcp { port: its, .. } if its == port);
    if servers.iter().filter(has_port).count() < 2 {
        // No other server has this port, so none can be the same.
        return None;
    }
    let look_up = move || {
        let addresses = addresses_of(host.as_str(), port, timeout).into_iter();
        addresses.map(|it| Listener::Tcp(it.ip().to_canonical(), port)).collect()
    };
    thread::start("resolver", look_up).ok()
}

fn listeners_of((server, lookup): (&Address, Option<JoinHandle<Vec<Listener>>>)) -> Vec<Listener> {
    match (&server.endpoint, lookup) {
        (Endpoint::Unix(path), _) => canonicalize(path).map(Listener::Unix).into_iter().collect(),
        // A panic aborts the process, so this default is never used.
        (_, Some(lookup)) => lookup.join().unwrap_or_default(),
        (_, None) => Vec::new(),
    }
}
