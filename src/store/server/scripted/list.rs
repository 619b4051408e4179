//! All locks on all servers that have some. A script for each would take ten times longer than what
//! it reads, so most are read without one.

use std::collections::BTreeSet;

use super::{Servers, unexpected_reply};
use crate::lock::pattern::Pattern;
use crate::lock::view::{State, View};
use crate::lock::{Key, Name, Prefix};
use crate::store::model::Snapshot;
use crate::store::server::node::Node;
use crate::store::server::reply;
use crate::store::server::scripts::{self, Call};
use crate::store::wire::{self, Cmd, FromRedisValue, Value};
use crate::store::{Failure, Listed, Listing};

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
) -> Result<Listing, Failure> {
    let mut listing = Listing::default();
    let database = servers.database();
    for node in servers.masters()? {
        let listed =
            names(node, prefix, pattern).and_then(|names| all_views(node, database, prefix, names));
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
        let scan = wire::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{}*", prefix.as_str()))
            .arg("COUNT")
            .arg(STEP)
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
        all.extend(second.join().unwrap_or_else(|_| Err(unexpected_reply()))?);
        Ok(all)
    })
}

/// As `look`, but a lock with more to it than any has hides no other.
fn views(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: &[Name],
) -> Result<Vec<Listed>, Failure> {
    let mut locks = Vec::with_capacity(names.len());
    for names in names.chunks(STRIDE) {
        match (look(node, database, prefix, names), names) {
            (Err(failure @ Failure::TooLarge(_)), [name]) => {
                locks.push((name.clone(), Err(failure)));
            }
            (Err(Failure::TooLarge(_)), names) => {
                let (first, second) = names.split_at(names.len() / 2);
                locks.extend(views(node, database, prefix, first)?);
                locks.extend(views(node, database, prefix, second)?);
            }
            (looked, _) => locks.extend(looked?),
        }
    }
    Ok(locks)
}

/// A quick look at each, and a proper one at those that are not plainly held: that somebody waits
/// for, that are another tool's, that many hold, or that have changed between two commands.
fn look(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: &[Name],
) -> Result<Vec<Listed>, Failure> {
    let keys: Vec<Key> = names.iter().map(|name| Key::new(prefix, name)).collect();
    let questions = keys.iter().flat_map(questions);
    let flight: Vec<Cmd> = [wire::cmd("TIME")].into_iter().chain(questions).collect();
    let mut replies = node.ask_all(flight)?.into_iter();
    let (seconds, micros): (u64, u64) = read(node, replies.next())?;
    let now = seconds * 1000 + micros / 1000;
    let mut sights = Vec::with_capacity(keys.len());
    for _ in &keys {
        // All of them at once, since an error leaves the others to be read.
        let replies = std::array::from_fn(|_| replies.next());
        sights.push(Sight::of(node, replies));
    }
    let mut views = quick_look(node, &keys, sights, now)?;
    let unclear = keys.iter().zip(&mut views).filter(|(_, view)| view.is_none());
    let (unclear, places): (Vec<&Key>, Vec<_>) = unclear.unzip();
    for (place, view) in places.into_iter().zip(proper_look(node, database, &unclear)?) {
        *place = Some(view);
    }
    Ok(names.iter().cloned().zip(views.into_iter().flatten()).collect())
}

/// A guard is a token. Of another tool's, which may be anything, a little is enough to tell.
const LONGEST_GUARD: usize = 256;

/// More holders than this are for a script to count.
const MOST_HOLDERS: usize = 100;

/// The fields of a lock's state that are about the lock.
const OF_THE_LOCK: [&str; 5] = ["guard", "mode", "fence", "floor", "ticket"];

/// Those about each hold, after its token and a colon.
const OF_A_HOLD: [&str; 7] = ["owner", "mode", "about", "fence", "acquired", "renewed", "standing"];

fn questions(key: &Key) -> [Cmd; 3] {
    let (last_byte, last_holder) = (LONGEST_GUARD - 1, MOST_HOLDERS);
    [
        wire::cmd("GETRANGE").arg(key.as_str()).arg(0).arg(last_byte).to_owned(),
        wire::cmd("ZRANGE")
            .arg(key.side("holds"))
            .arg(0)
            .arg(last_holder)
            .arg("WITHSCORES")
            .to_owned(),
        wire::cmd("HMGET").arg(key.side("state")).arg(&OF_THE_LOCK).to_owned(),
    ]
}

/// What a lock looks like before its holders are looked at.
enum Sight {
    Plain(Snapshot),
    /// Only a script can tell.
    Unclear,
    Unreadable(Failure),
}

impl Sight {
    fn of(node: &Node, replies: [Option<Value>; 3]) -> Self {
        match Self::read(node, replies) {
            Ok(Some(snapshot)) => Self::Plain(snapshot),
            Ok(None) => Self::Unclear,
            Err(failure) => Self::Unreadable(failure),
        }
    }

    fn read(
        node: &Node,
        [guard, holds, state]: [Option<Value>; 3],
    ) -> Result<Option<Snapshot>, Failure> {
        let holds: Vec<(String, f64)> = read(node, holds)?;
        // Whole milliseconds, which are exact.
        let holds: Vec<_> =
            holds.into_iter().map(|(token, deadline)| (token, deadline as u64)).collect();
        let guard: Vec<u8> = read(node, guard)?;
        let state: Vec<Option<String>> = read(node, state)?;
        let state = with_names(OF_THE_LOCK.map(str::to_owned), state);
        // Somebody waits.
        let queued = state.iter().any(|(field, _)| field == "ticket");
        Ok(match String::from_utf8(guard) {
            Ok(guard) if !queued && holds.len() <= MOST_HOLDERS && guard.len() < LONGEST_GUARD => {
                Some(Snapshot { guard: Some(guard).filter(|g| !g.is_empty()), holds, state })
            }
            _ => None,
        })
    }
}

fn with_names(
    names: impl IntoIterator<Item = String>,
    values: Vec<Option<String>>,
) -> Vec<(String, String)> {
    let all = names.into_iter().zip(values);
    all.filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The holders of those that are plainly held. `None` where only a script can tell.
fn quick_look(
    node: &mut Node,
    keys: &[Key],
    sights: Vec<Sight>,
    now: u64,
) -> Result<Vec<Option<Result<View, Failure>>>, Failure> {
    let fields = |snapshot: &Snapshot| -> Vec<String> {
        let tokens = snapshot.holds.iter().map(|(token, _)| token);
        tokens.flat_map(|token| OF_A_HOLD.map(|detail| format!("{token}:{detail}"))).collect()
    };
    let flight = keys.iter().zip(&sights).filter_map(|(key, sight)| match sight {
        Sight::Plain(snapshot) if !snapshot.holds.is_empty() => {
            Some(wire::cmd("HMGET").arg(key.side("state")).arg(fields(snapshot)).to_owned())
        }
        _ => None,
    });
    let flight: Vec<Cmd> = flight.collect();
    let details = if flight.is_empty() { Vec::new() } else { node.ask_all(flight)? };
    let mut details = details.into_iter();
    let mut views = Vec::with_capacity(sights.len());
    for sight in sights {
        views.push(match sight {
            Sight::Unreadable(failure) => Some(Err(failure)),
            Sight::Unclear => None,
            Sight::Plain(snapshot) if snapshot.holds.is_empty() => None,
            Sight::Plain(mut snapshot) => match read(node, details.next()) {
                Err(failure) => Some(Err(failure)),
                Ok(values) => {
                    let fields = fields(&snapshot);
                    snapshot.state.extend(with_names(fields, values));
                    snapshot.view(now).map(Ok)
                }
            },
        });
    }
    Ok(views)
}

fn proper_look(
    node: &mut Node,
    database: u32,
    keys: &[&Key],
) -> Result<Vec<Result<View, Failure>>, Failure> {
    let call =
        |key: &&Key| Call::new(scripts::INSPECT, key, None, database).with("").with(0).with(0);
    let Some((first, rest)) = keys.split_first() else { return Ok(Vec::new()) };
    let look = |value| reply::view(value).ok_or_else(unexpected_reply);
    // The first one by itself, so that the server surely has the script for the rest.
    let first = node.run(&call(first), false, None).map_err(Failure::from);
    let mut views = vec![first.and_then(|reply| look(reply.value))];
    let flight: Vec<Cmd> = rest.iter().map(|key| node.by_hash(&call(key))).collect();
    for (key, reply) in rest.iter().zip(node.ask_all(flight)?) {
        views.push(match reply {
            Value::ServerError(error) => Err(node.refused_script(&error, &call(key)).into()),
            reply => look(reply),
        });
    }
    Ok(views)
}

fn read<T: FromRedisValue>(node: &Node, reply: Option<Value>) -> Result<T, Failure> {
    match reply {
        Some(Value::ServerError(error)) => Err(node.refused(&error).into()),
        Some(reply) => wire::from_redis_value(reply).map_err(|_| unexpected_reply()),
        None => Err(unexpected_reply()),
    }
}
