//! All locks on all servers that have some.

use std::collections::BTreeSet;

use redis::Value;

use super::{Servers, nonsense};
use crate::lock::{Key, Name, Prefix};
use crate::pattern::Pattern;
use crate::store::node::Node;
use crate::store::scripts::{self, Call};
use crate::store::{Failure, Listed, Listing, reply};
use crate::view::State;

/// How many keys a step of SCAN looks at, and how many locks are inspected in one flight.
const STRIDE: usize = 1000;

/// The locks under a prefix that are not free, sorted by name. A server that cannot be asked does
/// not hide the locks of the others.
pub(super) fn list(
    servers: &mut impl Servers,
    prefix: &Prefix,
    pattern: Option<&Pattern>,
) -> Result<Listing, Failure> {
    let database = servers.database();
    let inspect = |key: &Key| Call::new(scripts::INSPECT, key, None, database);
    let mut listing = Listing::default();
    for node in servers.masters()? {
        let listed =
            names(node, prefix, pattern).and_then(|names| views(node, prefix, names, &inspect));
        match listed {
            Ok(locks) => listing.locks.extend(locks),
            Err(failure) => listing.unseen.push(failure),
        }
    }
    listing.locks.retain(|(_, view)| view.as_ref().map_or(true, |view| view.state != State::Free));
    listing.locks.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(listing)
}

/// Locks that are held have a guard, and a guard is the only string we keep.
fn names(
    node: &mut Node,
    prefix: &Prefix,
    pattern: Option<&Pattern>,
) -> Result<BTreeSet<Name>, Failure> {
    let mut names = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let scan = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{}*", prefix.as_str()))
            .arg("COUNT")
            .arg(STRIDE)
            .arg("TYPE")
            .arg("string")
            .to_owned();
        let page = redis::from_redis_value(node.ask(scan, None)?);
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = page.map_err(|_| nonsense())?;
        let name = |key: Vec<u8>| -> Option<Name> {
            String::from_utf8(key).ok()?.strip_prefix(prefix.as_str())?.parse().ok()
        };
        let found = keys.into_iter().filter_map(name);
        names.extend(found.filter(|name| pattern.is_none_or(|pattern| pattern.matches(name))));
        cursor = next;
        if cursor == b"0" {
            return Ok(names);
        }
    }
}

fn views(
    node: &mut Node,
    prefix: &Prefix,
    names: BTreeSet<Name>,
    inspect: &impl Fn(&Key) -> Call,
) -> Result<Vec<Listed>, Failure> {
    let names: Vec<Name> = names.into_iter().collect();
    let mut locks = Vec::new();
    // The first one by itself, so that the server surely has the script for the rest.
    let Some(first) = names.first() else { return Ok(locks) };
    node.run(&inspect(&Key::new(prefix, first)), false, None).map(drop).or_else(|refusal| {
        // Only of this lock, which is asked about again below.
        match refusal.into() {
            failure @ (Failure::Unreachable { .. } | Failure::Interrupted { .. }) => Err(failure),
            _ => Ok(()),
        }
    })?;
    for names in names.chunks(STRIDE) {
        let calls: Vec<Call> = names.iter().map(|name| inspect(&Key::new(prefix, name))).collect();
        for (name, value) in names.iter().zip(node.run_all(&calls)?) {
            let view = match value {
                Value::ServerError(error) => Err(node.refused(&error).into()),
                value => reply::view(value).ok_or_else(nonsense),
            };
            locks.push((name.clone(), view));
        }
    }
    Ok(locks)
}
