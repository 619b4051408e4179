//! The JSON of `inspect --json`, and of the holders in the error of a busy lock. Later versions only
//! add fields.

use serde::Serialize;

use super::{Inspected, rfc3339};
use crate::rules::{
    Ending, HistoryEntry, Holder, Key, Mode, Outcome, Owner, Prefix, ServerTime, View, Waiter,
    millis,
};

/// A JSON object with these fields, in this order. Flattened, a field that is an object stands for
/// its own fields, or for none if it is `None`.
macro_rules! object {
    ($($(#[$attribute:meta])* $field:ident: $value:expr),+ $(,)?) => {{
        // The type of each field has the name of the field.
        #[allow(non_camel_case_types)]
        let object = {
            #[derive(serde::Serialize)]
            struct Object<$($field),+> {
                $($(#[$attribute])* $field: $field),+
            }
            Object { $($field: $value),+ }
        };
        object
    }};
}
pub(crate) use object;

/// All locks, in the order given, with at most this many entries of their history.
pub fn documents(prefix: &Prefix, locks: &[Inspected], history: usize) -> Vec<impl Serialize> {
    locks.iter().map(|lock| document(prefix, lock, history)).collect()
}

fn document(prefix: &Prefix, lock: &Inspected, history: usize) -> impl Serialize {
    let Inspected { name, view, problems } = lock;
    let (skipped, waiters) = (view.skipped.as_deref(), view.waiters.iter().zip(1..));
    let entries = view.history.iter().rev().take(history);
    object! {
        name: name.as_str(),
        key: Key::new(prefix, name).as_str().to_owned(),
        state: view.state,
        mode: view.mode.map(Mode::name),
        slots: view.mode.and_then(Mode::slots),
        fence: view.fence,
        ttl_ms: view.ttl.map(millis),
        holders: holders(view),
        // Of all, also of those that are not listed.
        holder_count: view.holder_count(),
        waiters: Vec::from_iter(waiters.map(|(it, position)| waiter(it, Some(position), view.now))),
        waiter_count: view.waiter_count(),
        attention: Vec::from_iter(problems.iter().map(|problem| &problem.long)),
        // The clients that were turned away since the last hold began.
        skipped: object! {
            count: skipped.map_or(0, |it| it.count),
            last_at: skipped.map(|it| rfc3339(it.at)),
            last_by: skipped.map(|it| it.client.to_string()),
        },
        #[serde(flatten)]
        history: (history > 0).then(|| object! { history: Vec::from_iter(entries.map(entry)) }),
    }
}

/// All holders that the view lists.
pub(crate) fn holders(view: &View) -> Vec<impl Serialize> {
    view.holders.iter().map(|it| holder(it, view.now, None)).collect()
}

/// A holder and, if it was revoked and awaited, how its hold ended.
pub(crate) fn holder(holder: &Holder, now: ServerTime, ended: Option<Ending>) -> impl Serialize {
    object! {
        id: &holder.id,
        state: holder.state,
        owner: holder.owner.as_ref().map(Owner::shown),
        #[serde(flatten)]
        client: &holder.client,
        fence: holder.fence,
        acquired_at: rfc3339(holder.acquired),
        waited_ms: holder.waited.map(millis),
        renewed_at: rfc3339(holder.renewed),
        ttl_ms: millis(holder.deadline.since(now)),
        slot: holder.slot,
        #[serde(flatten)]
        ended: ended.map(|ended| object! { ended: ended }),
    }
}

/// A waiter. The position of one that was removed is unknown.
pub(crate) fn waiter(waiter: &Waiter, position: Option<u64>, now: ServerTime) -> impl Serialize {
    object! {
        position: position,
        id: &waiter.id,
        mode: waiter.mode.name(),
        #[serde(flatten)]
        client: &waiter.client,
        waiting_ms: millis(now.since(waiter.since)),
        next: waiter.next,
    }
}

fn entry(entry: &HistoryEntry) -> impl Serialize {
    let is_known = entry.outcome != Outcome::Unknown;
    object! {
        id: &entry.id,
        ended: entry.ending,
        ended_at: rfc3339(entry.at),
        acquired_at: rfc3339(entry.acquired),
        held_ms: millis(entry.at.since(entry.acquired)),
        waited_ms: entry.waited.map(millis),
        outcome: is_known.then(|| entry.outcome.to_string()),
        #[serde(flatten)]
        operator: &entry.operator,
        fence: entry.fence,
        mode: entry.mode.name(),
        #[serde(flatten)]
        client: &entry.client,
    }
}
