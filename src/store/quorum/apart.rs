//! Are they several servers? Two URLs may lead to one, which would then vote twice.

use std::fs::canonicalize;
use std::net::IpAddr;
use std::path::PathBuf;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::store::wire::{Address, Endpoint, addresses_of};

/// Where a server is to be found, as far as this host can tell.
#[derive(PartialEq, Eq)]
enum Place {
    Tcp(IpAddr, u16),
    Unix(PathBuf),
}

/// An error if two of them share an address. A name that has none in time proves nothing.
pub(super) fn require_apart(servers: &[Address], patience: Duration) -> Result<(), String> {
    let places: Vec<Vec<Place>> = std::thread::scope(|scope| {
        let find = |server| match Finding::of(server, servers) {
            Finding::Needless => Found::Now(Vec::new()),
            Finding::Quick => Found::Now(places_of(&server.endpoint, patience)),
            Finding::Slow => {
                let builder = std::thread::Builder::new().name("resolver".into());
                let find = move || places_of(&server.endpoint, patience);
                builder.spawn_scoped(scope, find).map_or(Found::Now(Vec::new()), Found::Later)
            }
        };
        let finding: Vec<Found<'_>> = servers.iter().map(find).collect();
        finding.into_iter().map(Found::await_it).collect()
    });
    for (number, server) in servers.iter().enumerate() {
        let is_same = |other: &usize| places[*other].iter().any(|p| places[number].contains(p));
        if let Some(other) = (0..number).find(is_same) {
            let other = &servers[other];
            return Err(format!("{other} and {server} are the same server; name it once"));
        }
    }
    Ok(())
}

/// What it takes to find out where a server is.
enum Finding {
    /// No other has its port.
    Needless,
    Quick,
    /// The resolver has to be asked.
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

enum Found<'scope> {
    Now(Vec<Place>),
    Later(ScopedJoinHandle<'scope, Vec<Place>>),
}

impl Found<'_> {
    fn await_it(self) -> Vec<Place> {
        match self {
            Self::Now(places) => places,
            // A panic has ended the process.
            Self::Later(thread) => thread.join().unwrap_or_default(),
        }
    }
}

fn places_of(endpoint: &Endpoint, patience: Duration) -> Vec<Place> {
    match endpoint {
        Endpoint::Tcp { host, port } => {
            let addresses = addresses_of(host, *port, patience).into_iter();
            addresses.map(|address| Place::Tcp(address.ip().to_canonical(), *port)).collect()
        }
        Endpoint::Unix(path) => canonicalize(path).map(Place::Unix).into_iter().collect(),
    }
}
