//! Lists the locks under a prefix on all servers.

use super::node::Node;
use super::refusal::Refusal;
use super::reply;
use super::scripts::{self, Call};
use super::topology::Topology;
use crate::rules::{
    Failure, FailureKind, Instant, Key, Listing, Name, Prefix, State, UserMessage, View,
};
use crate::store::wire::{self, OVERHEAD, Value};
use crate::store::{Filter, Interrupt, NEVER};

/// How many keys one SCAN examines, which blocks the server for one or two milliseconds.
const SCAN_COUNT: usize = 1_000;

/// How many pages a SCAN has at most, enough for a hundred million keys. Only a hostile server has
/// more.
const MAX_PAGES: usize = 100_000;

/// How many locks are read in one pipeline. A server reads a pipeline in pieces of 16 to 32 KiB,
/// and serves other clients in between.
const BATCH: usize = 100;

/// How many hash slots show whether a server is one of several nodes of a cluster.
const PROBES: u32 = 32;

/// How much memory one list of locks may take, in MiB, including the JSON that shows them.
const MOST_MEMORY: usize = 32;

/// The locks that pass a filter, sorted by name. A server that does not answer does not hide the
/// locks of the others.
pub(super) fn list(
    topology: &mut impl Topology,
    database: u32,
    filter: &Filter,
) -> Result<Listing, Failure> {
    let (mut listing, mut room) = (Listing::default(), MOST_MEMORY * 1024 * 1024);
    let call = |name: &Name| {
        let key = Key::new(&filter.prefix, name);
        let history = if filter.with_free { "1" } else { "" };
        Call::new(scripts::INSPECT, &key, None, database).with(history).with(0)
    };
    let probes: Vec<Name> =
        (0..PROBES).filter_map(|number| number.to_string().parse().ok()).collect();
    let masters = topology.masters()?;
    if masters.is_empty() {
        return Err(Failure::unavailable(
            "no node of the cluster is a master",
            "check CLUSTER INFO",
        ));
    }
    let is_alone = masters.len() == 1;
    for node in masters {
        let listed = once_more(|| {
            // A server that requires a password answers this, but closes the connection at a script.
            let names = names(node, filter, &mut room)?;
            has_all(node, probes.iter().map(&call).collect(), is_alone)?;
            if is_alone {
                node.ask_master_link()?;
            }
            Ok(names)
        });
        let listed = listed.and_then(|names| Ok((views(node, &names, call, &mut room)?, names)));
        match listed {
            Ok((views, names)) => listing.locks.extend(names.into_iter().zip(views)),
            Err(failure) => listing.failures.push(failure),
        }
    }
    let failures = std::mem::take(&mut listing.failures).into_iter();
    listing.failures = failures.map(|failure| topology.explain(failure)).collect();
    let is_listed = |view: &View| filter.with_free || view.state != State::Free;
    listing.locks.retain(|(_, view)| view.as_ref().map_or(true, is_listed));
    listing.locks.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(listing)
}

/// Fails if locks are on other nodes of a cluster, or if it is down. The probes inspect locks in many
/// hash slots, of which one of several masters does not have all.
fn has_all(node: &mut Node, probes: Vec<Call>, is_alone: bool) -> Result<(), Failure> {
    let is_elsewhere = |it: &Refusal| {
        is_alone && it.redirection.is_some()
            || it.redirection.is_none() && it.failure.is_transient()
    };
    let refused = node.run_scripts(&probes)?.into_iter().filter_map(Result::err).find(is_elsewhere);
    refused.map_or(Ok(()), |refusal| Err(refusal.failure))
}

/// Asks again if the connection broke.
fn once_more<T>(mut ask: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    match ask() {
        Err(failure) if failure.is_lost() => ask(),
        result => result,
    }
}

/// The names of the locks that may pass a filter, each once. A held lock has a guard, which is the
/// only string among its keys. A free lock has a state, the only hash, while it is remembered.
fn names(node: &mut Node, filter: &Filter, room: &mut usize) -> Result<Vec<Name>, Failure> {
    let keys = Key::pattern(&filter.prefix);
    let mut wanted = vec![(keys.as_str().to_owned(), "string")];
    wanted.extend(filter.with_free.then(|| (keys.side("state"), "hash")));
    let (mut names, mut cursor) = (Vec::new(), b"0".to_vec());
    for _ in 0..MAX_PAGES {
        let Some((glob, kind)) = wanted.last() else { return Ok(names) };
        let (page, next) = page(node, glob, kind, &cursor, NEVER)?;
        let is_last = next == b"0";
        for name in page {
            if filter.passes(&name) {
                take(room, OVERHEAD + 3 * name.as_str().len(), node)?;
                names.push(name);
            }
        }
        if is_last {
            // SCAN may return a key twice.
            names.sort_unstable();
            names.dedup();
            wanted.pop();
        }
        cursor = next;
    }
    let what = format!("{}: no end of SCAN after {MAX_PAGES} pages", node.endpoint());
    Err(Failure::misconfigured(what, "check that it is Redis or Valkey"))
}

/// The names of remembered locks that the server finds until this moment.
pub(super) fn names_until(node: &mut Node, prefix: &Prefix, until: Instant) -> Vec<Name> {
    let glob = Key::pattern(prefix).side("state");
    let stop = NEVER.or_at(until);
    let (mut names, mut cursor) = (Vec::new(), b"0".to_vec());
    while Instant::now() < until
        && let Ok((page, next)) = page(node, &glob, "hash", &cursor, stop)
    {
        names.extend(page);
        if next == b"0" {
            break;
        }
        cursor = next;
    }
    names
}

/// The names in the keys of this kind that match the pattern, from the cursor on, and the next cursor.
fn page(
    node: &mut Node,
    glob: &str,
    kind: &str,
    cursor: &[u8],
    interrupt: Interrupt<'_>,
) -> Result<(Vec<Name>, Vec<u8>), Failure> {
    let mut scan = wire::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(glob);
    scan.arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg(kind);
    let reply = node.ask(scan, interrupt).map_err(Refusal::of_question)?;
    let (next, keys): (Vec<u8>, Vec<Vec<u8>>) =
        wire::from_redis_value(reply).map_err(|_| node.unexpected_reply())?;
    let (before, after) = glob.split_once('*').unwrap_or_default();
    let name = |key: Vec<u8>| -> Option<Name> {
        let key = String::from_utf8(key).ok()?;
        key.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
    };
    Ok((keys.into_iter().filter_map(name).collect(), next))
}

/// The locks with these names. If they are too large to be read together, fewer are read at a time.
fn views(
    node: &mut Node,
    names: &[Name],
    call: impl Fn(&Name) -> Call,
    room: &mut usize,
) -> Result<Vec<Result<View, Failure>>, Failure> {
    let (mut views, mut size) = (Vec::with_capacity(names.len()), BATCH);
    while views.len() < names.len() {
        let rest = &names[views.len()..];
        let batch = &rest[..size.min(rest.len())];
        match pipeline(node, batch.iter().map(&call).collect(), room) {
            Ok(read) => {
                views.extend(read);
                size = BATCH.min(2 * size);
            }
            Err(failure) if failure.kind == FailureKind::TooLarge && batch.len() > 1 => {
                size = batch.len() / 2;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(views)
}

/// The locks that these calls show, in one pipeline. Of each lock, only the first page of its holders
/// and waiters.
fn pipeline(
    node: &mut Node,
    calls: Vec<Call>,
    room: &mut usize,
) -> Result<Vec<Result<View, Failure>>, Failure> {
    let (replies, mut size) = (node.run_scripts(&calls)?, 0);
    let view = |reply: Result<Value, Refusal>| {
        // No failure takes more than 1 KiB.
        size += reply.as_ref().map_or(1024, memory);
        let mut view = reply::page(reply.map_err(Refusal::of_question)?)
            .ok_or_else(|| node.unexpected_reply())?;
        // The latest are last, and a list shows one. A hostile server sends many.
        let surplus = view.history.len().saturating_sub(4);
        view.history = view.history.split_off(surplus);
        Ok(view)
    };
    let views = replies.into_iter().map(view).collect();
    take(room, size, node)?;
    Ok(views)
}

/// About how much memory a lock takes that is parsed from this reply. In JSON, a text can be twice as
/// long.
fn memory(reply: &Value) -> usize {
    let content = match reply {
        // Replacing what is not UTF-8 may make it longer.
        Value::BulkString(text) => 3 * String::from_utf8_lossy(text).len(),
        Value::SimpleString(text) => 3 * text.len(),
        Value::Array(values) => values.iter().map(memory).sum(),
        _ => 0,
    };
    OVERHEAD + content
}

/// Takes memory from what is left of it.
fn take(room: &mut usize, size: usize, node: &Node) -> Result<(), Failure> {
    *room = room.checked_sub(size).ok_or_else(|| {
        let what = format!("{}: locks take more than {MOST_MEMORY} MiB", node.endpoint());
        let fault = UserMessage::new(what).with_remedy("use a narrower pattern or --prefix");
        Failure::new(FailureKind::TooLarge, fault)
    })?;
    Ok(())
}
