//! The addresses of an endpoint: which there are at present, and in which order to try them.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::endpoint::Endpoint;
use super::limit::Limit;
use crate::report::plain;
use crate::rules::{Delivery, Failure, FailureKind, Instant, SystemCall, UserMessage};
use crate::store::denial;
use crate::system::call;
use crate::system::poll::Want;
use crate::system::thread;

/// How long a lookup is good for. Most runs are shorter, and need only one.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Nothing has been sent.
pub(super) fn unconnected(problem: impl Into<String>, remedy: &str) -> Failure {
    Failure::new(FailureKind::Unreachable, UserMessage::new(problem).with_remedy(remedy))
}

/// What is known about the addresses of an endpoint. Clones share it.
#[derive(Clone, Default)]
pub(in crate::store) struct Route(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// First the one that answered last, and at the end those that did not serve, the latest last.
    addresses: Vec<SockAddr>,
    /// Which of all addresses so far have answered as a master, and when they last did.
    masters: HashMap<SockAddr, Instant>,
    /// When the next lookup is due; `None` while one is under way.
    again: Option<Instant>,
    /// Whether there is only one address, whatever the endpoint resolves to.
    is_fixed: bool,
}

impl Route {
    /// Leads to this address alone.
    pub(super) fn only(address: SockAddr) -> Self {
        let known = Known { addresses: vec![address], is_fixed: true, ..Known::default() };
        Self(Arc::new(Mutex::new(known)))
    }

    /// Looks up the addresses, and returns them in the order in which to try them.
    ///
    /// The system's resolver has no timeout and cannot be interrupted, so it runs on another thread,
    /// which is abandoned if it takes too long.
    pub(in crate::store) fn addresses(
        &self,
        endpoint: &Endpoint,
        limit: Limit<'_>,
    ) -> Result<Vec<SockAddr>, Failure> {
        if self.known().is_fixed {
            return Ok(self.known().addresses.clone());
        }
        if is_literal(endpoint) || matches!(endpoint, Endpoint::Unix(_)) {
            return Ok(self.keep(look_up(endpoint)?));
        }
        let of = endpoint.clone();
        let resolving = thread::call("resolver", move || look_up(&of));
        let resolving = resolving.map_err(|error| denial::failure(SystemCall::Resource, &error))?;
        limit.ready([(resolving.as_fd(), Want::Read)], Delivery::NotExecuted)?;
        match resolving.next() {
            Some(Ok(found)) => Ok(self.keep(found)),
            Some(Err(failure)) => Err(failure),
            None => Err(unconnected("host name not resolved in time", "check the DNS server")),
        }
    }

    /// Whether the endpoint no longer has this address, as far as is known. If the last lookup is
    /// old, this begins another one in the background, for the next call.
    pub(super) fn has_left(&self, endpoint: &Endpoint, address: &SockAddr) -> bool {
        let mut known = self.known();
        if known.again.is_some_and(|again| again <= Instant::now()) && !is_literal(endpoint) {
            known.again = None;
            let (route, endpoint) = (self.clone(), endpoint.clone());
            // Without another thread, the address stays as it is.
            let _ = thread::start("resolver", move || {
                route.keep(look_up(&endpoint).unwrap_or_default());
            });
        }
        !known.addresses.contains(address)
    }

    pub(in crate::store) fn count(&self) -> usize {
        self.known().addresses.len()
    }

    /// Makes the next connection try this address first, because it serves.
    pub(in crate::store) fn prefer(&self, address: &SockAddr) {
        self.known().addresses.sort_by_key(|other| other != address);
    }

    /// Makes the next connection try this address last.
    pub(in crate::store) fn defer(&self, address: &SockAddr) {
        self.known().addresses.sort_by_key(|other| other == address);
    }

    /// Notes that this address has just answered as a master.
    pub(in crate::store) fn note_master(&self, address: &SockAddr) {
        self.known().masters.insert(address.clone(), Instant::now());
    }

    /// When this address last answered as a master.
    pub(in crate::store) fn was_master(&self, address: &SockAddr) -> Option<Instant> {
        self.known().masters.get(address).copied()
    }

    /// Keeps the result of a lookup, unless it has failed. New addresses come second.
    fn keep(&self, mut found: Vec<SockAddr>) -> Vec<SockAddr> {
        let mut known = self.known();
        known.again = Some(Instant::now() + GOOD_FOR);
        if !found.is_empty() {
            let place = |it: &SockAddr| known.addresses.iter().position(|known| known == it);
            found.sort_by_key(|it| place(it).map_or(1, |place| 2 * place));
            known.addresses = found;
        }
        known.addresses.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look_up(endpoint: &Endpoint) -> Result<Vec<SockAddr>, Failure> {
    let found = match endpoint {
        // The path may be a link that is moved. What it leads to may be too long.
        Endpoint::Unix(path) => {
            let socket = path.canonicalize().and_then(SockAddr::unix);
            socket.or_else(|_| SockAddr::unix(path)).map(|socket| vec![socket])
        }
        _ => endpoint.to_string().to_socket_addrs().map(|it| it.map(SockAddr::from).collect()),
    };
    found.map_err(|error| {
        // The standard library has only words for an error of the resolver, after these.
        let why = plain(&error).replace("failed to lookup address information: ", "");
        let why = why.to_lowercase();
        let lacks_memory = why.contains("memory");
        let errno = if lacks_memory { Some(Errno::ENOMEM) } else { call::errno(&error) };
        let (_, failure) = SystemCall::LookUp.failed(errno, why);
        let denied = failure.is_unreachable().then(without_sockets).flatten();
        denied.unwrap_or(failure).reworded(|why| format!("host name not resolved: {why}"))
    })
}

/// Why this process can open no socket, if so. The system's resolver does not say that.
fn without_sockets() -> Option<Failure> {
    let denied = |domain| {
        let error = Socket::new(domain, Type::DGRAM, None).err()?;
        Some(denial::blamed(SystemCall::Socket, &error))
    };
    let (one, other) = (denied(Domain::IPV4)?, denied(Domain::IPV6)?);
    Some(if other.0 > one.0 { other.1 } else { one.1 })
}

/// Whether it is an IP address, which needs no lookup.
fn is_literal(endpoint: &Endpoint) -> bool {
    endpoint.to_string().parse::<SocketAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_answered_last_comes_first_and_those_that_did_not_serve_come_last() {
        let at = |port| SockAddr::from(SocketAddr::from(([127, 0, 0, 1], port)));
        let route = Route::default();
        route.keep([1, 2, 3, 4].map(at).into());
        [2, 1].into_iter().for_each(|port| route.defer(&at(port)));
        [4, 7].into_iter().for_each(|port| route.prefer(&at(port)));
        assert_eq!(route.keep([1, 2, 3, 4, 5].map(at).into()), [4, 5, 3, 2, 1].map(at));
        // A failed lookup changes nothing, and a successful one forgets the others.
        assert_eq!(route.keep(Vec::new()).len(), 5);
        assert_eq!(route.keep(vec![at(1)]), [at(1)]);
    }
}
