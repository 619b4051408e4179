//! Reads many locks on one server. A script takes several times as long as the plain commands that
//! read a lock, so scripts read only the locks that need one. See docs/decisions.md.

use std::collections::VecDeque;

use crate::lock::view::View;
use crate::lock::{Key, Name, Prefix};
use crate::store::model::{RecordedHold, Snapshot};
use crate::store::server::node::Node;
use crate::store::server::reply::{self, unexpected_reply};
use crate::store::server::scripts::{self, Call};
use crate::store::wire::{self, Cmd, Value};
use crate::store::{Failure, Fate, Listed};

/// How many locks are read in one pipeline.
const BATCH: usize = 250;

/// How many pipelines are in flight at once: the server runs one while rlock processes the replies
/// to another.
const FLIGHTS: usize = 8;

/// How many bytes of a guard are read. A token is shorter; another tool may store any value.
const LONGEST_GUARD: usize = 256;

/// A script reads locks with more holders than this.
const MOST_HOLDERS: usize = 100;

/// Reads each lock by plain commands. A script reads the lock again if it has waiters or many
/// holders, belongs to another tool, or changed between two commands.
pub(super) fn read(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: Vec<Name>,
) -> Result<Vec<Listed>, Failure> {
    let views = in_batches(&names, |names, views| by_commands(node, prefix, names, views))?;
    let is_unclear = |view: &Result<Option<View>, Failure>| matches!(view, Ok(None));
    let unclear = names.iter().zip(&views).filter(|(_, view)| is_unclear(view));
    let unclear: Vec<Name> = unclear.map(|(name, _)| name.clone()).collect();
    let read_again = in_batches(&unclear, |names, views| {
        for names in names.chunks(BATCH) {
            views.extend(by_script(node, database, prefix, names)?);
        }
        Ok(())
    })?;
    let mut read_again = read_again.into_iter();
    let view = |view| match view {
        Ok(None) => read_again.next().unwrap_or_else(|| Err(unexpected_reply())),
        Ok(Some(view)) => Ok(view),
        Err(failure) => Err(failure),
    };
    Ok(names.into_iter().zip(views.into_iter().map(view)).collect())
}

/// Reads all of these locks with `read`, which appends their results in order until it fails. A lock
/// that is too large to read does not hide the others: `read` gets fewer locks at a time, until that
/// lock is alone. A connection that breaks is replaced once.
fn in_batches<T>(
    names: &[Name],
    mut read: impl FnMut(&[Name], &mut Vec<Result<T, Failure>>) -> Result<(), Failure>,
) -> Result<Vec<Result<T, Failure>>, Failure> {
    let mut results = Vec::with_capacity(names.len());
    let (mut size, mut is_second) = (BATCH, false);
    while results.len() < names.len() {
        let rest = &names[results.len()..];
        let next = if size < BATCH { &rest[..size.min(rest.len())] } else { rest };
        match read(next, &mut results) {
            Ok(()) => size = BATCH.min(2 * size),
            Err(failure @ Failure::TooLarge(_)) if size == 1 => results.push(Err(failure)),
            Err(Failure::TooLarge(_)) => size /= 2,
            Err(Failure::Unreachable { fate: Fate::Lost, .. }) if !is_second => is_second = true,
            Err(failure) => return Err(failure),
        }
    }
    Ok(results)
}

/// Some locks with a pipeline in flight.
struct Batch {
    keys: Vec<Key>,
    /// The time and what is known of the locks; `None` until the first pipeline has been answered.
    known: Option<(u64, Vec<Outline>)>,
}

/// Reads locks by plain commands, two pipelines for each batch. The view is `None` if a script must
/// read the lock.
fn by_commands(
    node: &mut Node,
    prefix: &Prefix,
    names: &[Name],
    views: &mut Vec<Result<Option<View>, Failure>>,
) -> Result<(), Failure> {
    let mut flights = node.flights()?;
    let mut under_way = VecDeque::new();
    let mut batches = names.chunks(BATCH);
    loop {
        while under_way.len() < FLIGHTS
            && let Some(names) = batches.next()
        {
            let keys: Vec<Key> = names.iter().map(|name| Key::new(prefix, name)).collect();
            let questions = keys.iter().flat_map(questions);
            flights.send([wire::cmd("TIME")].into_iter().chain(questions).collect())?;
            under_way.push_back(Batch { keys, known: None });
        }
        let Some(Batch { keys, known }) = under_way.pop_front() else { return Ok(()) };
        let replies = flights.receive()?.into_iter();
        match known {
            None => {
                let known = outlines(flights.node(), &keys, replies)?;
                flights.send(details(&keys, &known.1))?;
                under_way.push_back(Batch { keys, known: Some(known) });
            }
            Some((now, outlines)) => {
                let mut replies = replies;
                let node = flights.node();
                views.extend(
                    outlines.into_iter().map(|outline| outline.view(node, &mut replies, now)),
                );
            }
        }
    }
}

/// Asks what `outlines` reads of a lock.
fn questions(key: &Key) -> [Cmd; 2] {
    let (last_byte, last_holder) = (LONGEST_GUARD - 1, MOST_HOLDERS);
    let mut guard = Cmd::with_capacity(4, 128);
    guard.arg("GETRANGE").arg(key.as_str()).arg(0).arg(last_byte);
    let mut holds = Cmd::with_capacity(5, 128);
    holds.arg("ZRANGE").arg(key.side("holds")).arg(0).arg(last_holder).arg("WITHSCORES");
    [guard, holds]
}

/// The time on the server, in milliseconds, and what the replies tell of each lock.
fn outlines(
    node: &Node,
    keys: &[Key],
    mut replies: impl Iterator<Item = Value>,
) -> Result<(u64, Vec<Outline>), Failure> {
    let (seconds, micros): (u64, u64) = node.parse(replies.next())?;
    let now = seconds.saturating_mul(1000).saturating_add(micros / 1000);
    // Take both even if one is an error: the next lock's replies follow.
    let replies = keys.iter().map(|_| std::array::from_fn(|_| replies.next()));
    Ok((now, replies.map(|replies| Outline::of(node, replies)).collect()))
}

/// Asks for the fields of the locks that have holds, and for the details of all their holds.
fn details(keys: &[Key], outlines: &[Outline]) -> Vec<Cmd> {
    let locks = keys.iter().zip(outlines);
    let question = |(key, outline): (&Key, &Outline)| {
        let Outline::Held(snapshot) = outline else { return None };
        let fields = Snapshot::FIELDS.len() + snapshot.holds.len();
        let mut question = Cmd::with_capacity(2 + fields, 64 * (2 + fields));
        question.arg("HMGET").arg(key.side("state")).arg(&Snapshot::FIELDS);
        for hold in &snapshot.holds {
            question.arg(hold.field());
        }
        Some(question)
    };
    locks.filter_map(question).collect()
}

/// What is known of a lock before its fields are read.
enum Outline {
    /// It has holds. Its fields and the details of the holds are still missing.
    Held(Snapshot),
    /// A script must read it.
    Unclear,
    Unreadable(Failure),
}

impl Outline {
    fn of(node: &Node, replies: [Option<Value>; 2]) -> Self {
        match Self::read(node, replies) {
            Ok(Some(snapshot)) => Self::Held(snapshot),
            Ok(None) => Self::Unclear,
            Err(failure) => Self::Unreadable(failure),
        }
    }

    fn read(node: &Node, [guard, holds]: [Option<Value>; 2]) -> Result<Option<Snapshot>, Failure> {
        let holds: Vec<(String, f64)> = node.parse(holds)?;
        let guard: Vec<u8> = node.parse(guard)?;
        let Ok(guard) = String::from_utf8(guard) else { return Ok(None) };
        let is_usual = (1..LONGEST_GUARD).contains(&guard.len());
        if !is_usual || holds.is_empty() || holds.len() > MOST_HOLDERS {
            return Ok(None);
        }
        let hold = |(token, deadline)| RecordedHold {
            token,
            // Deadlines are whole milliseconds below 2^53, so the cast is exact.
            deadline: deadline as u64,
            details: None,
        };
        let holds = holds.into_iter().map(hold).collect();
        Ok(Some(Snapshot { guard: Some(guard), fields: Default::default(), holds }))
    }

    /// The lock, with the rest from the next reply if it has holds. `None` if a script must read it.
    fn view(
        self,
        node: &Node,
        replies: &mut impl Iterator<Item = Value>,
        now: u64,
    ) -> Result<Option<View>, Failure> {
        let mut snapshot = match self {
            Self::Held(snapshot) => snapshot,
            Self::Unclear => return Ok(None),
            Self::Unreadable(failure) => return Err(failure),
        };
        let values: Vec<Option<String>> = node.parse(replies.next())?;
        let mut values = values.into_iter();
        snapshot.fields = std::array::from_fn(|_| values.next().flatten());
        for hold in &mut snapshot.holds {
            hold.details = values.next().flatten();
        }
        // A hold without details has just ended, or the server evicted them.
        let is_complete = snapshot.holds.iter().all(|hold| hold.details.is_some());
        Ok(if is_complete { snapshot.view(now) } else { None })
    }
}

fn by_script(
    node: &mut Node,
    database: u32,
    prefix: &Prefix,
    names: &[Name],
) -> Result<Vec<Result<View, Failure>>, Failure> {
    let call = |name: &Name| {
        let key = Key::new(prefix, name);
        Call::new(scripts::INSPECT, &key, None, database).with("").with(0).with(0)
    };
    let Some((first, rest)) = names.split_first() else { return Ok(Vec::new()) };
    let view = |value| reply::view(value).ok_or_else(unexpected_reply);
    // The first runs by itself, so that the server knows the script when the rest arrives.
    let first = node.run_script(&call(first), false, None).map_err(Failure::from);
    let mut views = vec![first.and_then(|reply| view(reply.value))];
    let commands: Vec<Cmd> = rest.iter().map(|name| node.as_hash(&call(name))).collect();
    for (name, reply) in rest.iter().zip(node.ask_all(commands)?) {
        views.push(match reply {
            Value::ServerError(error) => Err(node.refused_script(&error, &call(name)).into()),
            reply => view(reply),
        });
    }
    Ok(views)
}
