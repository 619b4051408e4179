//! What a lock consists of, and the limits that apply everywhere.

mod queue;

use std::cmp::Ordering;
use std::collections::BTreeMap;

pub(crate) use queue::{Details, Extent, Layout, Queue};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::rules::lock::view::{Ending, HoldState};
use crate::rules::lock::{Mode, Slot};

/// How long a granted lock waits for the waiter to claim it, in milliseconds.
pub(crate) const CLAIM_WINDOW: u64 = 2_000;

/// A day, in milliseconds.
pub(crate) const DAY: u64 = 24 * 3_600 * 1_000;

/// The longest lease, a week, in milliseconds.
pub(crate) const LONGEST_TTL: u64 = 7 * DAY;

/// A time this late means that the lock is damaged. The limit, in milliseconds since the epoch, is
/// in the year 37,648.
pub(crate) const TOO_FAR: u64 = 1 << 50;

/// How many holds or waiters one call drops or admits at most. Small in tests, so that some work
/// remains for the next call.
pub(crate) const BATCH: usize = if cfg!(test) { 3 } else { 100 };

/// How many holders and waiters one reply lists at most.
pub(crate) const MAX_LISTED: usize = 100;

/// Everything about one lock.
#[derive(Clone, Debug, Default, Hash, Serialize, Deserialize)]
pub(crate) struct Lock {
    /// The guard: the token that other tools see as the value of the lock.
    pub(crate) guard: Option<Guard>,
    /// The guard as rlock last wrote it.
    pub(crate) written: Option<String>,
    /// The mode of the holds as a whole.
    pub(crate) mode: Option<Mode>,
    /// The last fencing token granted: microseconds since the epoch, or more; 0 if there is none.
    pub(crate) fence: u64,
    /// A random mark that changes when the lock is forgotten.
    #[serde(default)]
    pub(crate) life: String,
    pub(crate) holds: Vec<Hold>,
    #[serde(skip)]
    pub(crate) queue: Queue,
    /// The last number assigned in the queue.
    #[serde(default)]
    pub(crate) ticket: u64,
    /// The waiters that are called; see `Transaction::is_called`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) called: Vec<String>,
    /// The last request that supersedes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) newest: Option<Newest>,
    /// The waiter that knows it is the head of the queue.
    #[serde(default, rename = "told")]
    pub(crate) notified: Option<String>,
    #[serde(default, rename = "revocation")]
    pub(crate) floor: Floor,
    /// How the last holds ended, the latest last.
    #[serde(default, rename = "past")]
    pub(crate) history: Vec<HistoryEntry>,
    /// Tokens that were released or given up.
    #[serde(default)]
    pub(crate) over: Vec<Mark>,
    /// The messages to waiters since the last call of `take_mail`.
    #[serde(skip)]
    pub(crate) mail: Vec<Mail>,
}

#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(crate) struct Guard {
    pub(crate) value: String,
    pub(crate) until: Option<u64>,
}

#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) token: String,
    pub(crate) owner: String,
    /// Whether a user chose the owner's name, so that it can enter from anywhere.
    #[serde(default)]
    pub(crate) named: bool,
    pub(crate) mode: Mode,
    pub(crate) about: String,
    pub(crate) fence: u64,
    pub(crate) acquired: u64,
    /// When its holder first asked for it; `None` if unknown, as for a reinstated hold.
    #[serde(default)]
    pub(crate) since: Option<u64>,
    /// When its holder last asked for it; `None` if it was granted to a waiter that has not claimed
    /// it yet.
    pub(crate) renewed: Option<u64>,
    pub(crate) deadline: u64,
    /// The time until which it is kept even if released sooner; 0 for none.
    #[serde(rename = "keep")]
    pub(crate) keep_until: u64,
    /// The length of its lease.
    #[serde(default)]
    pub(crate) ttl: u64,
    /// Its number in a lock with slots; `None` in another mode, or on one of several servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slot: Option<Slot>,
    /// The number of the request that was granted.
    #[serde(default)]
    pub(crate) attempt: u64,
    /// `Revoked` only if the hold was reinstated. See `hold_state` for the other ways.
    pub(crate) standing: HoldState,
    /// Set if it was revoked individually, not with all up to the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked: Option<Revoked>,
}

/// When a hold was revoked, and by whom.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(crate) struct Revoked {
    pub(crate) at: u64,
    /// An `Operator` as stores keep it.
    pub(crate) by: String,
}

/// Holds with a fence up to this one are revoked.
#[derive(Clone, Debug, Default, Hash, Serialize, Deserialize)]
pub(crate) struct Floor {
    #[serde(rename = "floor")]
    pub(crate) fence: u64,
    pub(crate) how: Option<Ending>,
    /// Who revoked them; empty if unknown.
    pub(crate) by: String,
    pub(crate) at: u64,
}

/// Of the waiting requests that supersede, only the newest remains.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(crate) struct Newest {
    /// On which several servers agreed; 0 if there is only one server.
    pub(crate) ticket: u64,
    pub(crate) token: String,
    pub(crate) about: String,
}

/// A request with this token is rejected until this time.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// After a line break, who ended the request, and how; see `mark_ended`.
    pub(crate) token: String,
    pub(crate) until: u64,
}

/// How a hold ended.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(crate) struct HistoryEntry {
    pub(crate) ending: Ending,
    pub(crate) at: u64,
    /// In the form that `Outcome` prints.
    pub(crate) outcome: String,
    pub(crate) id: String,
    pub(crate) acquired: u64,
    /// When its holder first asked for it, if known.
    #[serde(default)]
    pub(crate) since: Option<u64>,
    pub(crate) fence: u64,
    pub(crate) mode: Mode,
    pub(crate) by: String,
    pub(crate) about: String,
}

/// A request with a position in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Waiter {
    pub(crate) token: String,
    pub(crate) owner: String,
    /// Whether a user chose the owner's name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) named: bool,
    pub(crate) mode: Mode,
    pub(crate) about: String,
    pub(crate) since: u64,
    /// The time until which it is presumed alive.
    pub(crate) alive: u64,
    /// Whether it may enter a lock that its owner holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reentrant: bool,
    #[serde(default)]
    pub(crate) ttl: u64,
    #[serde(default)]
    pub(crate) attempt: u64,
    /// The number that orders the queue.
    #[serde(default)]
    pub(crate) ticket: u64,
    #[serde(default, skip_serializing_if = "Origin::is_counted")]
    pub(crate) origin: Origin,
    /// Whether it goes ahead of all waiters without this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) next: bool,
    /// The file name of its mailbox. Only `local:` uses this and `stamp`.
    #[serde(default)]
    pub(crate) mailbox: String,
    #[serde(default)]
    pub(crate) stamp: Stamp,
}

/// When a hold on `local:` was last granted or renewed, or a waiter last asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// The index of the clock that measured its times.
    pub(crate) clock: usize,
    #[serde(deserialize_with = "plausible")]
    pub(crate) at: u64,
    /// When processes with other clocks first saw it in this form, by their own clocks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) seen: BTreeMap<usize, u64>,
}

/// Reads a time, and rejects one that is so large that adding a lease to it might overflow.
pub(crate) fn plausible<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let time = u64::deserialize(deserializer)?;
    if time >= TOO_FAR { Err(D::Error::custom("a time too far in the future")) } else { Ok(time) }
}

/// Where the ticket of a waiter comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Origin {
    /// This server counted it: it is the only one that keeps the lock.
    #[default]
    Counted,
    /// This server proposed it: it is one of several that keep the lock.
    Proposed,
    /// Several servers agreed on it.
    Agreed,
}

/// A message to a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mail {
    pub(crate) token: String,
    pub(crate) message: Message,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    /// The waiter is the new head of the queue.
    Head,
    /// The waiter is called, and would get this fencing token.
    Called(u64),
    /// The waiter has another reason to ask again.
    Look,
}

impl Origin {
    /// Takes a reference, as serde requires.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_counted(&self) -> bool {
        *self == Self::Counted
    }
}

impl Waiter {
    /// The order of the queue.
    pub(crate) fn place(&self) -> (bool, u64, &str) {
        (!self.next, self.ticket, &self.token)
    }

    /// Whether only its token is known, because its details are invalid.
    fn is_lost(&self) -> bool {
        self.alive == 0
    }
}

impl Hold {
    /// The order in which leases expire.
    pub(crate) fn by_deadline(&self, other: &Self) -> Ordering {
        (self.deadline, &self.token).cmp(&(other.deadline, &other.token))
    }
}
