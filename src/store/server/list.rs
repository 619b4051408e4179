//! Lists the locks under a prefix on all servers.

use super::node::Node;
use super::reply;
use super::scripts::{self, Call};
use super::topology::Topology;
use crate::rules::{
    Delivery, Failure, Key, Listing, Name, Pattern, Prefix, State, UserMessage, View,
};
use crate::store::wire::{self, Cmd};

/// How many keys one SCAN examines. More would block the server for longer than a few milliseconds.
const SCAN_COUNT: usize = 5_000;

/// How many pages a SCAN has at most, enough for half a billion keys. Only a hostile server has
/// more.
const MAX_PAGES: usize = 100_000;

/// How many locks are read in one pipeline. A server reads a pipeline in pieces of 16 to 32 KiB,
/// and serves other clients in between.
const BATCH: usize = 250;

/// How many locks of one server are listed at most, so that their names fit into memory.
const MAX_LOCKS: usize = 1_000_000;

/// The locks under a prefix that are not free, sorted by name. A server that does not answer does
/// not hide the locks of the others.
pub(super) fn list(
    topology: &mut impl Topology,
    database: u32,
    prefix: &Prefix,
    pattern: Option<&Pattern>,
) -> Result<Listing, Failure> {
    let mut listing = Listing::default();
    for node in topology.masters()? {
        let listed = once_more(|| names(node, prefix, pattern))
            .and_then(|names| Ok((views(node, database, prefix, &names)?, names)));
        match listed {
            Ok((views, names)) => listing.locks.extend(names.into_iter().zip(views)),
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
        Err(Failure::Unreachable { delivery: Delivery::Lost, .. }) => ask(),
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
    let (mut names, mut cursor) = (Vec::new(), b"0".to_vec());
    for _ in 0..MAX_PAGES {
        let reply = node.ask(page(prefix, &cursor), None)?;
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) =
            wire::from_redis_value(reply).map_err(|_| node.unexpected_reply())?;
        let is_last = next == b"0";
        let name = |key: Vec<u8>| -> Option<Name> {
            String::from_utf8(key).ok()?.strip_prefix(prefix.as_str())?.parse().ok()
        };
        let found = keys.into_iter().filter_map(name);
        names.extend(
            found.filter(|name| pattern.is_none_or(|pattern| pattern.matches(name.as_str()))),
        );
        if is_last || names.len() > MAX_LOCKS {
            // SCAN may return a key twice.
            names.sort_unstable();
            names.dedup();
        }
        if names.len() > MAX_LOCKS {
            let fault =
                UserMessage::new(format!("{}: more than {MAX_LOCKS} locks", node.endpoint()));
            return Err(Failure::TooLarge(fault.with_remedy("use a narrower pattern or --prefix")));
        }
        if is_last {
            return Ok(names);
        }
        cursor = next;
    }
    let what = format!("{}: no end of SCAN after {MAX_PAGES} pages", node.endpoint());
    Err(Failure::misconfigured(what, "check that it is Redis or Valkey"))
}

/// Asks for the keys that begin with the prefix, from the cursor on.
fn page(prefix: &Prefix, cursor: &[u8]) -> Cmd {
    let mut scan = wire::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(format!("{}*", prefix.as_str()));
    scan.arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg("string");
    scan
}

/// The locks with these names. If they are too large to be read together, fewer are read at a time.
fn views(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: &[Name],
) -> Result<Vec<Result<View, Failure>>, Failure> {
    let (mut views, mut size) = (Vec::with_capacity(names.len()), BATCH);
    while views.len() < names.len() {
        let rest = &names[views.len()..];
        let batch = &rest[..size.min(rest.len())];
        match pipeline(node, database, prefix, batch) {
            Ok(read) => {
                views.extend(read);
                size = BATCH.min(2 * size);
            }
            Err(Failure::TooLarge(_)) if batch.len() > 1 => size = batch.len() / 2,
            Err(failure) => return Err(failure),
        }
    }
    Ok(views)
}

/// The locks with these names, in one pipeline. Of each lock, only the first page of its holders
/// and waiters, and no history.
fn pipeline(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: &[Name],
) -> Result<Vec<Result<View, Failure>>, Failure> {
    let call = |name| {
        let key = Key::new(prefix, name);
        Call::new(scripts::INSPECT, &key, None, database).with("").with(0)
    };
    let calls: Vec<Call> = names.iter().map(call).collect();
    let replies = node.run_scripts(&calls)?;
    let view = |reply| reply::view(reply?).ok_or_else(|| node.unexpected_reply());
    Ok(replies.into_iter().map(view).collect())
}
