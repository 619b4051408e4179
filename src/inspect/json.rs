//! The JSON of `inspect --json`, and of the holders in the error of a busy lock.

use std::num::NonZeroU32;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Serialize, Serializer};

use super::Inspected;
use crate::rules::{
    ClientInfo, Ending, Fence, HistoryEntry, HoldState, Holder, Key, Mode, Operator, Outcome,
    Owner, Prefix, ServerTime, Slot, State, View, Waiter, millis,
};

/// The version of every document. Later versions only add fields.
#[derive(Default)]
pub(crate) struct Format;

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(1)
    }
}

#[derive(Serialize)]
pub struct LockDocument<'a> {
    name: &'a str,
    key: String,
    state: State,
    mode: Option<&'static str>,
    slots: Option<NonZeroU32>,
    fence: Option<Fence>,
    ttl_ms: Option<u64>,
    holders: Vec<HolderDocument<'a>>,
    /// Of all, also of those that are not listed.
    holder_count: u64,
    waiters: Vec<WaiterDocument<'a>>,
    waiter_count: u64,
    /// Why it needs attention.
    attention: Vec<&'a str>,
    skipped: SkippedDocument,
    /// Present only if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<HistoryDocument<'a>>>,
}

#[derive(Serialize)]
pub(crate) struct HolderDocument<'a> {
    id: &'a str,
    state: HoldState,
    owner: Option<String>,
    #[serde(flatten)]
    client: &'a ClientInfo,
    fence: Fence,
    acquired_at: String,
    waited_ms: Option<u64>,
    renewed_at: String,
    ttl_ms: u64,
    slot: Option<Slot>,
    /// Of a hold that was revoked, if it was awaited: how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Ending>,
}

#[derive(Serialize)]
pub(crate) struct WaiterDocument<'a> {
    /// Unknown for one that was removed.
    position: Option<usize>,
    id: &'a str,
    mode: &'static str,
    #[serde(flatten)]
    client: &'a ClientInfo,
    waiting_ms: u64,
    next: bool,
}

/// The clients that were turned away since the last hold began.
#[derive(Default, Serialize)]
struct SkippedDocument {
    count: u64,
    last_at: Option<String>,
    last_by: Option<String>,
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
    #[serde(flatten)]
    operator: &'a Operator,
    fence: Fence,
    mode: &'static str,
    #[serde(flatten)]
    client: &'a ClientInfo,
}

/// All locks, in the order given, with at most this many entries of their history.
pub fn documents<'a>(
    prefix: &'a Prefix,
    locks: impl IntoIterator<Item = &'a Inspected>,
    history: usize,
) -> Vec<LockDocument<'a>> {
    let document = |Inspected { name, view, problems }: &'a Inspected| LockDocument {
        name: name.as_str(),
        key: Key::new(prefix, name).as_str().to_owned(),
        state: view.state,
        mode: view.mode.map(Mode::name),
        slots: view.mode.and_then(Mode::slots),
        fence: view.fence,
        ttl_ms: view.ttl.map(millis),
        holders: HolderDocument::all(view),
        holder_count: view.holder_count(),
        waiters: view
            .waiters
            .iter()
            .zip(1..)
            .map(|(waiter, position)| WaiterDocument::new(waiter, Some(position), view.now))
            .collect(),
        waiter_count: view.waiter_count(),
        attention: problems.iter().map(|problem| problem.long.as_str()).collect(),
        skipped: view.skipped.as_ref().map_or_else(SkippedDocument::default, |skipped| {
            SkippedDocument {
                count: skipped.count,
                last_at: Some(rfc3339(skipped.at)),
                last_by: Some(skipped.client.to_string()),
            }
        }),
        history: (history > 0)
            .then(|| view.history.iter().rev().take(history).map(HistoryDocument::new).collect()),
    };
    locks.into_iter().map(document).collect()
}

impl<'a> HolderDocument<'a> {
    /// All holders that the view lists.
    pub(crate) fn all(view: &'a View) -> Vec<Self> {
        view.holders.iter().map(|holder| Self::new(holder, view.now)).collect()
    }

    pub(crate) fn new(holder: &'a Holder, now: ServerTime) -> Self {
        Self {
            id: &holder.id,
            state: holder.state,
            owner: holder.owner.as_ref().map(Owner::shown),
            client: &holder.client,
            fence: holder.fence,
            acquired_at: rfc3339(holder.acquired),
            waited_ms: holder.waited.map(millis),
            renewed_at: rfc3339(holder.renewed),
            ttl_ms: millis(holder.deadline.since(now)),
            slot: holder.slot,
            ended: None,
        }
    }
}

impl<'a> WaiterDocument<'a> {
    pub(crate) fn new(waiter: &'a Waiter, position: Option<usize>, now: ServerTime) -> Self {
        Self {
            position,
            id: &waiter.id,
            mode: waiter.mode.name(),
            client: &waiter.client,
            waiting_ms: millis(now.since(waiter.since)),
            next: waiter.next,
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
            operator: &entry.operator,
            fence: entry.fence,
            mode: entry.mode.name(),
            client: &entry.client,
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
