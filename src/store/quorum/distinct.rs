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
    let lookups: Vec<Lookup> =
        servers.iter().map(|server| Lookup::start(server, servers, timeout)).collect();
    let listeners: Vec<Vec<Listener>> = lookups.into_iter().map(Lookup::result).collect();
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

/// A lookup of where a server listens.
enum Lookup {
    Done(Vec<Listener>),
    Running(JoinHandle<Vec<Listener>>),
}

impl Lookup {
    fn start(server: &Address, servers: &[Address], timeout: Duration) -> Self {
        let has_port = |port: u16| move |server: &&Address| matches!(server.endpoint, Endpoint::Tcp { port: p, .. } if p == port);
        match &server.endpoint {
            Endpoint::Unix(path) => {
                Self::Done(canonicalize(path).map(Listener::Unix).into_iter().collect())
            }
            // No other server has this port, so none can be the same.
            Endpoint::Tcp { port, .. } if servers.iter().filter(has_port(*port)).count() < 2 => {
                Self::Done(Vec::new())
            }
            Endpoint::Tcp { host, port } => {
                let (host, port) = (host.clone(), *port);
                if let Ok(ip) = host.as_str().parse::<IpAddr>() {
                    return Self::Done(vec![Listener::Tcp(ip.to_canonical(), port)]);
                }
                let look_up = move || {
                    let addresses = addresses_of(host.as_str(), port, timeout).into_iter();
                    addresses.map(|it| Listener::Tcp(it.ip().to_canonical(), port)).collect()
                };
                thread::start("resolver", look_up).map_or(Self::Done(Vec::new()), Self::Running)
            }
        }
    }

    fn result(self) -> Vec<Listener> {
        match self {
            Self::Done(listeners) => listeners,
            // A panic aborts the process, so this default is never used.
            Self::Running(thread) => thread.join().unwrap_or_default(),
        }
    }
}
