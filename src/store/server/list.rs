//! Lists the locks under a prefix on all servers.

mod views;

use std::collections::BTreeSet;

use super::node::Node;
use super::reply::unexpected_reply;
use super::topology::Topology;
use crate::lock::pattern::Pattern;
use crate::lock::view::State;
use crate::lock::{Name, Prefix};
use crate::report::Fault;
use crate::store::wire;
use crate::store::{Failure, Listed, Listing};

/// How many keys one SCAN examines. More would block the server for longer than a few milliseconds.
const SCAN_COUNT: usize = 10_000;

/// How many pages a SCAN has at most, enough for a billion keys. Only a hostile server has more.
const MAX_PAGES: usize = 100_000;

/// How many locks of one server are listed at most, so that their names fit into memory.
const MAX_LOCKS: usize = 1_000_000;

/// How many locks are read in one pipeline.
const BATCH: usize = 1_250;

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
        let listed =
            names(node, prefix, pattern).and_then(|names| views(node, database, prefix, &names));
        match listed {
            Ok(locks) => listing.locks.extend(locks),
            Err(failure) => listing.failures.push(failure),
        }
    }
    listing.locks.retain(|(_, view)| view.as_ref().map_or(true, |view| view.state != State::Free));
    listing.locks.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(listing)
}

/// The names of held locks, each once: SCAN may return a key twice. A held lock has a guard, which
/// is the only string among its keys.
fn names(
    node: &mut Node,
    prefix: &Prefix,
    pattern: Option<&Pattern>,
) -> Result<Vec<Name>, Failure> {
    let mut names = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    for _ in 0..MAX_PAGES {
        let scan = wire::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{}*", prefix.as_str()))
            .arg("COUNT")
            .arg(SCAN_COUNT)
            .arg("TYPE")
            .arg("string")
            .to_owned();
        let page = wire::from_redis_value(node.ask(scan, None)?);
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = page.map_err(|_| unexpected_reply())?;
        let name = |key: Vec<u8>| -> Option<Name> {
            String::from_utf8(key).ok()?.strip_prefix(prefix.as_str())?.parse().ok()
        };
        let found = keys.into_iter().filter_map(name);
        names.extend(found.filter(|name| pattern.is_none_or(|pattern| pattern.matches(name))));
        if names.len() > MAX_LOCKS {
            let fault = Fault::new(format!("{}: more than {MAX_LOCKS} locks", node.endpoint()));
            return Err(Failure::TooLarge(fault.with_remedy("use a narrower pattern or --prefix")));
        }
        cursor = next;
        if cursor == b"0" {
            return Ok(names.into_iter().collect());
        }
    }
    let fault = Fault::new(format!("{}: no end of SCAN after {MAX_PAGES} pages", node.endpoint()));
    Err(Failure::misconfigured(fault.with_remedy("check that it is Redis or Valkey")))
}

/// Reads locks in batches. A lock that is too large to read does not hide the others: its batch is
/// halved until it is alone.
fn views(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: &[Name],
) -> Result<Vec<Listed>, Failure> {
    let mut locks = Vec::with_capacity(names.len());
    for names in names.chunks(BATCH) {
        match (views::read(node, database, prefix, names), names) {
            (Err(failure @ Failure::TooLarge(_)), [name]) => {
                locks.push((name.clone(), Err(failure)));
            }
            (Err(Failure::TooLarge(_)), names) => {
                let (first, second) = names.split_at(names.len() / 2);
                locks.extend(views(node, database, prefix, first)?);
                locks.extend(views(node, database, prefix, second)?);
            }
            (read, _) => locks.extend(read?),
        }
    }
    Ok(locks)
}
