//! The JSON of `inspect --json`, and of the holders in the error of a busy lock.

use std::num::NonZeroU32;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Serialize, Serializer};

use super::Inspected;
use crate::rules::{
    ClientInfo, Ending, Fence, HistoryEntry, Holder, Key, Kind, Mode, Outcome, Owner, Prefix,
    ServerTime, Slot, State, View, Waiter, millis,
};

/// One lock.
#[derive(Serialize)]
struct LockDocument<'a> {
    name: &'a str,
    key: String,
    state: State,
    mode: Option<&'static str>,
    slots: Option<NonZeroU32>,
    fence: Option<Fence>,
    ttl_ms: Option<u64>,
    holders: Vec<HolderDocument<'a>>,
    waiters: Vec<WaiterDocument<'a>>,
    /// Present only if the user named the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<HistoryDocument<'a>>>,
}

#[derive(Serialize)]
pub(crate) struct HolderDocument<'a> {
    id: &'a str,
    owner: String,
    host: &'a str,
    user: &'a str,
    pid: u32,
    command: &'a str,
    label: Option<&'a str>,
    fence: Fence,
    acquired_at: String,
    waited_ms: Option<u64>,
    renewed_at: String,
    ttl_ms: u64,
    kind: Kind,
    slot: Option<Slot>,
}

/// A client that is neither a holder nor a waiter.
#[derive(Serialize)]
pub(crate) struct ClientDocument<'a> {
    host: &'a str,
    user: &'a str,
    pid: u32,
    command: &'a str,
    label: Option<&'a str>,
}

#[derive(Serialize)]
pub(crate) struct WaiterDocument<'a> {
    /// Not for one that is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    id: &'a str,
    mode: &'static str,
    host: &'a str,
    user: &'a str,
    pid: u32,
    command: &'a str,
    label: Option<&'a str>,
    waiting_ms: u64,
    next: bool,
}

#[derive(Serialize)]
struct HistoryDocument<'a> {
    id: &'a str,
    ended: Ending,
    ended_at: String,
    acquired_at: String,
    held_ms: u64,
    waited_ms: Option<u64>,
    outcome: Option<String>,
    by: Option<&'a str>,
    reason: Option<&'a str>,
    fence: Fence,
    mode: &'static str,
    host: &'a str,
    user: &'a str,
    pid: u32,
    command: &'a str,
    label: Option<&'a str>,
    kind: Kind,
}

/// A list that creates its elements one by one as it is written.
struct Sequence<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Sequence<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

/// All locks, in the order given, with their history if requested.
pub(crate) fn documents<'a>(
    prefix: &'a Prefix,
    locks: impl IntoIterator<Item = &'a Inspected, IntoIter: Clone>,
    with_history: bool,
) -> impl Serialize {
    let document = move |Inspected { name, view, .. }: &'a Inspected| LockDocument {
        name: name.as_str(),
        key: Key::new(prefix, name).as_str().to_owned(),
        state: view.state,
        mode: view.mode.map(Mode::name),
        slots: view.mode.and_then(Mode::slots),
        fence: view.fence,
        ttl_ms: view.ttl.map(millis),
        holders: HolderDocument::all(view),
        waiters: view
            .waiters
            .iter()
            .zip(1..)
            .map(|(waiter, position)| WaiterDocument::new(waiter, position, view.now))
            .collect(),
        history: with_history
            .then(|| view.history.iter().rev().map(HistoryDocument::new).collect()),
    };
    Sequence(locks.into_iter().map(document))
}

impl<'a> HolderDocument<'a> {
    /// All holders that the view lists.
    pub(crate) fn all(view: &'a View) -> Vec<Self> {
        view.holders.iter().map(|holder| Self::new(holder, view.now)).collect()
    }

    pub(crate) fn new(holder: &'a Holder, now: ServerTime) -> Self {
        Self {
            id: &holder.id,
            owner: Owner::shown(&holder.owner),
            host: &holder.client.host,
            user: &holder.client.user,
            pid: holder.client.pid,
            command: &holder.client.command,
            label: holder.client.label(),
            fence: holder.fence,
            acquired_at: rfc3339(holder.acquired),
            waited_ms: holder.waited.map(millis),
            renewed_at: rfc3339(holder.renewed),
            ttl_ms: millis(holder.deadline.since(now)),
            kind: holder.client.kind,
            slot: holder.slot,
        }
    }
}

impl<'a> WaiterDocument<'a> {
    /// A waiter that was removed from the queue.
    pub(crate) fn removed(waiter: &'a Waiter, now: ServerTime) -> Self {
        Self { position: None, ..Self::new(waiter, 0, now) }
    }

    fn new(waiter: &'a Waiter, position: usize, now: ServerTime) -> Self {
        Self {
            position: Some(position),
            id: &waiter.id,
            mode: waiter.mode.name(),
            host: &waiter.client.host,
            user: &waiter.client.user,
            pid: waiter.client.pid,
            command: &waiter.client.command,
            label: waiter.client.label(),
            waiting_ms: millis(now.since(waiter.since)),
            next: waiter.next,
        }
    }
}

impl<'a> ClientDocument<'a> {
    pub(crate) fn new(client: &'a ClientInfo) -> Self {
        Self {
            host: &client.host,
            user: &client.user,
            pid: client.pid,
            command: &client.command,
            label: client.label(),
        }
    }
}

impl<'a> HistoryDocument<'a> {
    fn new(entry: &'a HistoryEntry) -> Self {
        Self {
            id: &entry.id,
            ended: entry.ending,
            ended_at: rfc3339(entry.at),
            acquired_at: rfc3339(entry.acquired),
            held_ms: millis(entry.at.since(entry.acquired)),
            waited_ms: entry.waited.map(millis),
            outcome: match entry.outcome {
                Outcome::Unknown => None,
                outcome => Some(outcome.to_string()),
            },
            by: entry.operator.name.as_deref(),
            reason: entry.operator.reason.as_deref(),
            fence: entry.fence,
            mode: entry.mode.name(),
            host: &entry.client.host,
            user: &entry.client.user,
            pid: entry.client.pid,
            command: &entry.client.command,
            label: entry.client.label(),
            kind: entry.client.kind,
        }
    }
}

/// A time in RFC 3339, whose last year is 9999. A later time comes from a wrong clock or from
/// another tool, and shows as the epoch.
pub(crate) fn rfc3339(time: ServerTime) -> String {
    const LAST: u64 = 253_402_300_799_999;
    let millis = if time.0 <= LAST { time.0 } else { 0 };
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_and_an_impossible_one_does_not_panic() {
        assert_eq!(rfc3339(ServerTime(1_795_240_597_683)), "2026-11-21T05:56:37.683Z");
        assert_eq!(rfc3339(ServerTime(u64::MAX)), "1970-01-01T00:00:00.000Z");
    }
}
