//! Reads many locks on one server. A script takes ten times longer than the plain commands that
//! read a lock, so scripts read only the locks that need one.

use crate::lock::view::View;
use crate::lock::{Key, Name, Prefix};
use crate::store::model::Snapshot;
use crate::store::server::node::Node;
use crate::store::server::reply::{self, unexpected_reply};
use crate::store::server::scripts::{self, Call};
use crate::store::wire::{self, Cmd, FromRedisValue, Value};
use crate::store::{Failure, Listed};

/// Reads each lock by plain commands. A script reads the lock again if it has waiters or many
/// holders, belongs to another tool, or changed between two commands.
pub(super) fn read(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: &[Name],
) -> Result<Vec<Listed>, Failure> {
    let keys: Vec<Key> = names.iter().map(|name| Key::new(prefix, name)).collect();
    let questions = keys.iter().flat_map(questions);
    let commands: Vec<Cmd> = [wire::cmd("TIME")].into_iter().chain(questions).collect();
    let mut replies = node.ask_all(commands)?.into_iter();
    let (seconds, micros): (u64, u64) = parse(node, replies.next())?;
    let now = seconds.saturating_mul(1000).saturating_add(micros / 1000);
    let mut outlines = Vec::with_capacity(keys.len());
    for _ in &keys {
        // Take all three even if one is an error: the next lock's replies follow.
        let replies = std::array::from_fn(|_| replies.next());
        outlines.push(Outline::of(node, replies));
    }
    let mut views = by_commands(node, &keys, outlines, now)?;
    let unclear = keys.iter().zip(&mut views).filter(|(_, view)| view.is_none());
    let (unclear, missing): (Vec<&Key>, Vec<_>) = unclear.unzip();
    for (missing, view) in missing.into_iter().zip(by_script(node, database, &unclear)?) {
        *missing = Some(view);
    }
    Ok(names.iter().cloned().zip(views.into_iter().flatten()).collect())
}

/// How many bytes of a guard are read. A token is shorter; another tool may store any value.
const LONGEST_GUARD: usize = 256;

/// A script reads locks with more holders than this.
const MOST_HOLDERS: usize = 100;

/// The fields of a lock's state hash that describe the lock.
const OF_THE_LOCK: [&str; 5] = ["guard", "mode", "fence", "floor", "ticket"];

/// The fields that describe one hold; each name follows the hold's token and a colon.
const OF_A_HOLD: [&str; 8] =
    ["owner", "mode", "about", "fence", "acquired", "renewed", "standing", "slot"];

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

/// What is known of a lock before the details of its holds are read.
enum Outline {
    Plain(Snapshot),
    /// A script must read it.
    Unclear,
    Unreadable(Failure),
}

impl Outline {
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
        let holds: Vec<(String, f64)> = parse(node, holds)?;
        // Deadlines are whole milliseconds below 2^53, so the cast is exact.
        let holds: Vec<_> =
            holds.into_iter().map(|(token, deadline)| (token, deadline as u64)).collect();
        let guard: Vec<u8> = parse(node, guard)?;
        let state: Vec<Option<String>> = parse(node, state)?;
        let state = with_names(OF_THE_LOCK.map(str::to_owned), state);
        // Only a lock with a queue has a ticket counter.
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

/// Reads the details of the holds by plain commands. `None` if a script must read the lock.
fn by_commands(
    node: &mut Node,
    keys: &[Key],
    outlines: Vec<Outline>,
    now: u64,
) -> Result<Vec<Option<Result<View, Failure>>>, Failure> {
    let fields = |snapshot: &Snapshot| -> Vec<String> {
        let tokens = snapshot.holds.iter().map(|(token, _)| token);
        tokens.flat_map(|token| OF_A_HOLD.map(|detail| format!("{token}:{detail}"))).collect()
    };
    let commands = keys.iter().zip(&outlines).filter_map(|(key, outline)| match outline {
        Outline::Plain(snapshot) if !snapshot.holds.is_empty() => {
            Some(wire::cmd("HMGET").arg(key.side("state")).arg(fields(snapshot)).to_owned())
        }
        _ => None,
    });
    let commands: Vec<Cmd> = commands.collect();
    let details = if commands.is_empty() { Vec::new() } else { node.ask_all(commands)? };
    let mut details = details.into_iter();
    let mut views = Vec::with_capacity(outlines.len());
    for outline in outlines {
        views.push(match outline {
            Outline::Unreadable(failure) => Some(Err(failure)),
            Outline::Unclear => None,
            Outline::Plain(snapshot) if snapshot.holds.is_empty() => None,
            Outline::Plain(mut snapshot) => match parse(node, details.next()) {
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

fn by_script(
    node: &mut Node,
    database: u32,
    keys: &[&Key],
) -> Result<Vec<Result<View, Failure>>, Failure> {
    let call =
        |key: &&Key| Call::new(scripts::INSPECT, key, None, database).with("").with(0).with(0);
    let Some((first, rest)) = keys.split_first() else { return Ok(Vec::new()) };
    let view = |value| reply::view(value).ok_or_else(unexpected_reply);
    // The first runs by itself, so that the server knows the script when the rest arrives.
    let first = node.run_script(&call(first), false, None).map_err(Failure::from);
    let mut views = vec![first.and_then(|reply| view(reply.value))];
    let commands: Vec<Cmd> = rest.iter().map(|key| node.as_hash(&call(key))).collect();
    for (key, reply) in rest.iter().zip(node.ask_all(commands)?) {
        views.push(match reply {
            Value::ServerError(error) => Err(node.refused_script(&error, &call(key)).into()),
            reply => view(reply),
        });
    }
    Ok(views)
}

fn parse<T: FromRedisValue>(node: &Node, reply: Option<Value>) -> Result<T, Failure> {
    match reply {
        Some(Value::ServerError(error)) => Err(node.refused(&error).into()),
        Some(reply) => wire::from_redis_value(reply).map_err(|_| unexpected_reply()),
        None => Err(unexpected_reply()),
    }
}
