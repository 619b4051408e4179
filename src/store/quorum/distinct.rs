//! Refuses URLs of a quorum that lead to the same server, which would then have two votes.

use std::fs::canonicalize;
use std::net::IpAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::store::wire::{Address, Endpoint, addresses_of};
use crate::system::thread;

/// Where a server listens, as far as this host can tell.
#[derive(PartialEq, Eq)]
enum Place {
    Tcp(IpAddr, u16),
    Unix(PathBuf),
}

/// Checks that no two servers share an address. `timeout` bounds the name lookups; a name that is not
/// resolved in time proves nothing.
///
/// # Errors
///
/// One line that names two servers that are the same.
pub(super) fn require_distinct(servers: &[Address], timeout: Duration) -> Result<(), String> {
    let find = |server: &Address| match Finding::of(server, servers) {
        Finding::Needless => Found::Now(Vec::new()),
        Finding::Quick => Found::Now(places_of(&server.endpoint, timeout)),
        Finding::Slow => {
            let endpoint = server.endpoint.clone();
            thread::start("resolver", move || places_of(&endpoint, timeout))
                .map_or(Found::Now(Vec::new()), Found::Later)
        }
    };
    // All threads start before the first is awaited.
    let finding: Vec<Found> = servers.iter().map(find).collect();
    let places: Vec<Vec<Place>> = finding.into_iter().map(Found::await_it).collect();
    for (number, server) in servers.iter().enumerate() {
        let is_same = |other: &usize| places[*other].iter().any(|p| places[number].contains(p));
        if let Some(other) = (0..number).find(is_same) {
            let other = &servers[other];
            return Err(format!("{other} and {server} are the same server; list it once"));
        }
    }
    Ok(())
}

/// What it takes to learn where a server listens.
enum Finding {
    /// Nothing: no other server has its port.
    Needless,
    Quick,
    /// A name lookup.
    Slow,
}

impl Finding {
    fn of(server: &Address, servers: &[Address]) -> Self {
        let is_on = |port: u16| move |other: &&Address| matches!(other.endpoint, Endpoint::Tcp { port: p, .. } if p == port);
        match &server.endpoint {
            Endpoint::Unix(_) => Self::Quick,
            Endpoint::Tcp { port, .. } if servers.iter().filter(is_on(*port)).count() < 2 => {
                Self::Needless
            }
            Endpoint::Tcp { host, .. } if host.parse::<IpAddr>().is_ok() => Self::Quick,
            Endpoint::Tcp { .. } => Self::Slow,
        }
    }
}

enum Found {
    Now(Vec<Place>),
    Later(JoinHandle<Vec<Place>>),
}

impl Found {
    fn await_it(self) -> Vec<Place> {
        match self {
            Self::Now(places) => places,
            // A panic aborts the process, so this default is never used.
            Self::Later(thread) => thread.join().unwrap_or_default(),
        }
    }
}

fn places_of(endpoint: &Endpoint, timeout: Duration) -> Vec<Place> {
    match endpoint {
        Endpoint::Tcp { host, port } => {
            let addresses = addresses_of(host, *port, timeout).into_iter();
            addresses.map(|address| Place::Tcp(address.ip().to_canonical(), *port)).collect()
        }
        Endpoint::Unix(path) => canonicalize(path).map(Place::Unix).into_iter().collect(),
    }
}
