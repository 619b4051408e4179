//! Lists the locks under a prefix on all servers.

mod views;

use super::node::Node;
use super::topology::Topology;
use crate::lock::pattern::Pattern;
use crate::lock::view::State;
use crate::lock::{Name, Prefix};
use crate::report::Fault;
use crate::store::wire::{self, Cmd};
use crate::store::{Failure, Fate, Listing};

/// How many keys one SCAN examines. More would block the server for longer than a few milliseconds.
const SCAN_COUNT: usize = 10_000;

/// How many pages a SCAN has at most, enough for a billion keys. Only a hostile server has more.
const MAX_PAGES: usize = 100_000;

/// How many locks of one server are listed at most, so that their names fit into memory.
const MAX_LOCKS: usize = 1_000_000;

/// The locks under a prefix that are not free, sorted by name. A server that does not answer does
/// not hide the locks of the others.
pub(super) fn list(
    topology: &mut impl Topology,
    prefix: &Prefix,
    pattern: Option<&Pattern>,
) -> Result<Listing, Failure> {
    let mut listing = Listing::default();
    let database = topology.database();
    for node in topology.masters()? {
        let listed = once_more(|| names(node, prefix, pattern))
            .and_then(|names| views::read(node, database, prefix, names));
        match listed {
            Ok(locks) if listing.locks.is_empty() => listing.locks = locks,
            Ok(locks) => listing.locks.extend(locks),
            Err(failure) => listing.failures.push(failure),
        }
    }
    listing.locks.retain(|(_, view)| view.as_ref().map_or(true, |view| view.state != State::Free));
    listing.locks.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(listing)
}

/// Asks again if the connection broke.
fn once_more<T>(mut ask: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    match ask() {
        Err(Failure::Unreachable { fate: Fate::Lost, .. }) => ask(),
        result => result,
    }
}

/// The names of held locks, each once. A held lock has a guard, which is the only string among its
/// keys.
fn names(
    node: &mut Node,
    prefix: &Prefix,
    pattern: Option<&Pattern>,
) -> Result<Vec<Name>, Failure> {
    let mut names = Vec::new();
    // The first page travels with the login.
    let mut reply = node.ask_all(vec![page(prefix, b"0")])?.pop();
    let mut flights = node.flights()?;
    for _ in 0..MAX_PAGES {
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = flights.node().parse(reply)?;
        let is_last = next == b"0";
        if !is_last {
            // The server works on it meanwhile.
            flights.send(vec![page(prefix, &next)])?;
        }
        let name = |key: Vec<u8>| -> Option<Name> {
            String::from_utf8(key).ok()?.strip_prefix(prefix.as_str())?.parse().ok()
        };
        let found = keys.into_iter().filter_map(name);
        names.extend(found.filter(|name| pattern.is_none_or(|pattern| pattern.matches(name))));
        if is_last || names.len() > MAX_LOCKS {
            // SCAN may return a key twice.
            names.sort_unstable();
            names.dedup();
        }
        if names.len() > MAX_LOCKS {
            let endpoint = flights.node().endpoint();
            let fault = Fault::new(format!("{endpoint}: more than {MAX_LOCKS} locks"));
            return Err(Failure::TooLarge(fault.with_remedy("use a narrower pattern or --prefix")));
        }
        if is_last {
            return Ok(names);
        }
        reply = flights.receive()?.pop();
    }
    let fault = Fault::new(format!("{}: no end of SCAN after {MAX_PAGES} pages", node.endpoint()));
    Err(Failure::misconfigured(fault.with_remedy("check that it is Redis or Valkey")))
}

/// Asks for the keys that begin with the prefix, from the cursor on.
fn page(prefix: &Prefix, cursor: &[u8]) -> Cmd {
    let mut scan = wire::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(format!("{}*", prefix.as_str()));
    scan.arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg("string");
    scan
}
