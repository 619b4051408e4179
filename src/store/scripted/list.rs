//! All locks on all servers that have some. A script for each would take ten times longer than what
//! it reads, so most are read without one.

use std::collections::BTreeSet;

use redis::{Cmd, FromRedisValue, Value};

use super::{Servers, nonsense};
use crate::lock::{Key, Name, Prefix};
use crate::pattern::Pattern;
use crate::progress::Progress;
use crate::store::model::Snapshot;
use crate::store::node::Node;
use crate::store::scripts::{self, Call};
use crate::store::{Failure, Listed, Listing, reply};
use crate::view::{State, View};

/// How many keys a step of SCAN looks at: few enough not to keep a server from others for more than
/// a few milliseconds.
const STEP: usize = 10_000;

/// How many locks are read in one flight.
const STRIDE: usize = 1_250;

/// The locks under a prefix that are not free, sorted by name. A server that cannot be asked does
/// not hide the locks of the others.
pub(super) fn list(
    servers: &mut impl Servers,
    prefix: &Prefix,
    pattern: Option<&Pattern>,
    progress: &Progress,
) -> Result<Listing, Failure> {
    let mut listing = Listing::default();
    let database = servers.database();
    for node in servers.masters()? {
        let listed = names(node, prefix, pattern, progress)
            .and_then(|names| all_views(node, database, prefix, names));
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
    progress: &Progress,
) -> Result<BTreeSet<Name>, Failure> {
    let mut names = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let scan = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{}*", prefix.as_str()))
            .arg("COUNT")
            .arg(STEP)
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
        progress.advance(STEP);
        cursor = next;
        if cursor == b"0" {
            return Ok(names);
        }
    }
}

/// Many are read on two connections at once: most of the time goes into reading what the server
/// says, not into its saying it.
fn all_views(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: BTreeSet<Name>,
) -> Result<Vec<Listed>, Failure> {
    let names: Vec<Name> = names.into_iter().collect();
    if names.len() < STRIDE {
        return views(node, database, prefix, &names);
    }
    let (first, second) = names.split_at(names.len() / 2);
    let other = node.sibling(node.endpoint().clone());
    let mut other = other.map_err(|what| Failure::Misconfigured { what, executed: false })?;
    std::thread::scope(|scope| {
        let second = scope.spawn(move || views(&mut other, database, prefix, second));
        let mut all = views(node, database, prefix, first)?;
        // A panic has ended the process.
        all.extend(second.join().unwrap_or_else(|_| Err(nonsense()))?);
        Ok(all)
    })
}

/// A quick look at each, and a proper one at those that are not plainly held: that somebody waits
/// for, that are another tool's, or that have changed between two commands.
fn views(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: &[Name],
) -> Result<Vec<Listed>, Failure> {
    let mut locks = Vec::with_capacity(names.len());
    for names in names.chunks(STRIDE) {
        let keys: Vec<Key> = names.iter().map(|name| Key::new(prefix, name)).collect();
        let questions = keys.iter().flat_map(questions);
        let flight: Vec<Cmd> = [redis::cmd("TIME")].into_iter().chain(questions).collect();
        let mut replies = node.ask_all(flight)?.into_iter();
        let (seconds, micros): (u64, u64) = read(node, replies.next())?;
        let now = seconds * 1000 + micros / 1000;
        let mut views: Vec<Option<Result<View, Failure>>> = Vec::with_capacity(keys.len());
        for _ in &keys {
            // All of them at once, since an error leaves the others to be read.
            let replies = std::array::from_fn(|_| replies.next());
            views.push(quick_look(node, replies, now).transpose());
        }
        let unclear = keys.iter().zip(&mut views).filter(|(_, view)| view.is_none());
        let (unclear, places): (Vec<&Key>, Vec<_>) = unclear.unzip();
        for (place, view) in places.into_iter().zip(proper_look(node, database, &unclear)?) {
            *place = Some(view);
        }
        let views = views.into_iter().flatten();
        locks.extend(names.iter().cloned().zip(views));
    }
    Ok(locks)
}

fn questions(key: &Key) -> [Cmd; 3] {
    [
        redis::cmd("GET").arg(key.as_str()).to_owned(),
        redis::cmd("ZRANGE").arg(key.side("holds")).arg(&["0", "-1", "WITHSCORES"]).to_owned(),
        redis::cmd("HGETALL").arg(key.side("state")).to_owned(),
    ]
}

/// `None` if that is not enough.
fn quick_look(
    node: &Node,
    [guard, holds, state]: [Option<Value>; 3],
    now: u64,
) -> Result<Option<View>, Failure> {
    let holds: Vec<(String, f64)> = read(node, holds)?;
    // Whole milliseconds, which are exact.
    let holds = holds.into_iter().map(|(token, deadline)| (token, deadline as u64)).collect();
    // Another tool's may be anything.
    let guard: Option<Vec<u8>> = read(node, guard)?;
    let Some(Ok(guard)) = guard.map(String::from_utf8) else { return Ok(None) };
    let snapshot = Snapshot { guard: Some(guard), holds, state: read(node, state)? };
    Ok(snapshot.view(now))
}

fn proper_look(
    node: &mut Node,
    database: u32,
    keys: &[&Key],
) -> Result<Vec<Result<View, Failure>>, Failure> {
    let call = |key: &&Key| Call::new(scripts::INSPECT, key, None, database).with("");
    let Some((first, rest)) = keys.split_first() else { return Ok(Vec::new()) };
    let look = |value| reply::view(value).ok_or_else(nonsense);
    // The first one by itself, so that the server surely has the script for the rest.
    let first = node.run(&call(first), false, None).map_err(Failure::from);
    let mut views = vec![first.and_then(|reply| look(reply.value))];
    let flight: Vec<Cmd> = rest.iter().map(|key| call(key).by_hash()).collect();
    let replies = node.ask_all(flight)?.into_iter();
    views.extend(replies.map(|reply| look(read(node, Some(reply))?)));
    Ok(views)
}

fn read<T: FromRedisValue>(node: &Node, reply: Option<Value>) -> Result<T, Failure> {
    match reply {
        Some(Value::ServerError(error)) => Err(node.refused(&error).into()),
        Some(reply) => redis::from_redis_value(reply).map_err(|_| nonsense()),
        None => Err(nonsense()),
    }
}
