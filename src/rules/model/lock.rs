//! What a lock consists of, and the limits that apply everywhere.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

pub use crate::rules::lease::CLAIM_WINDOW;
use crate::rules::lock::stored;
use crate::rules::{
    ClientInfo, Ending, Fence, HoldState, Mode, Nomination, Operator, Owner, Skipped, Slot,
};

/// A day, in milliseconds.
pub const DAY: u64 = 24 * 3_600 * 1_000;

/// The longest lease, a week, in milliseconds.
pub(crate) const LONGEST_TTL: u64 = 7 * DAY;

/// No lease and no tombstone lasts this long, in milliseconds.
pub(crate) const TOO_LONG: u64 = 2 * LONGEST_TTL;

/// A time this late means that the lock is damaged. The limit, in milliseconds since the epoch, is
/// in the year 37,648.
pub(crate) const TOO_FAR: u64 = 1 << 50;

/// How many holds or waiters one call drops or admits at most.
pub(crate) const BATCH: usize = 100;

/// How many holders and waiters one reply lists at most.
pub(crate) const MAX_LISTED: usize = 100;

/// Everything about one lock.
#[derive(Clone, Debug, Default, PartialEq, Hash, Serialize, Deserialize)]
pub struct Lock {
    /// The guard: the token that other tools see as the value of the lock.
    pub guard: Option<Guard>,
    /// The guard as rlock last wrote it.
    pub written: Option<String>,
    /// The mode of the holds as a whole.
    pub mode: Option<Mode>,
    /// The last fencing token granted: microseconds since the epoch, or more; 0 if there is none.
    pub fence: u64,
    /// Random; it changes when the lock is forgotten.
    pub generation: String,
    pub holds: Vec<Hold>,
    /// The waiters, in the order in which they are served.
    pub queue: Vec<QueueEntry>,
    /// The last number assigned in the queue.
    pub ticket: u64,
    /// The waiters that are nominated; see `Transaction::is_nominated`.
    pub nominated: Vec<String>,
    /// The last request that supersedes.
    pub newest: Option<Newest>,
    /// The waiter that knows it is the head of the queue.
    pub notified: Option<String>,
    pub revoked_up_to: RevokedUpTo,
    /// How the last holds ended, the latest last: records, because most calls read none.
    pub history: Vec<String>,
    pub skipped: Option<Skipped>,
    pub tombstones: Vec<Tombstone>,
    /// The messages to waiters that are not sent yet.
    #[serde(skip)]
    pub mail: Vec<Mail>,
}

#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Guard {
    pub value: String,
    pub until: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Hash, Serialize, Deserialize)]
pub struct Hold {
    pub token: String,
    /// `None` for the hold of a closed lock, which is nobody's.
    pub owner: Option<Owner>,
    /// The IDs of the holders that a closed lock waits for.
    pub closed_for: Vec<String>,
    pub mode: Mode,
    #[serde(with = "stored")]
    pub client: ClientInfo,
    pub fence: u64,
    pub acquired: u64,
    /// When its holder first asked for it; `None` if unknown, as in a closed lock.
    pub since: Option<u64>,
    /// When its holder last asked for it; `None` if it was granted to a waiter that has not claimed
    /// it yet.
    pub renewed: Option<u64>,
    pub deadline: u64,
    /// The time until which it is kept even if released sooner; 0 for none.
    pub keep_until: u64,
    /// The length of its lease.
    pub ttl: u64,
    /// Its number in a lock with slots; `None` in another mode.
    pub slot: Option<Slot>,
    /// The number of the request that was granted.
    pub attempt: u64,
    /// `Revoked` only for the hold of a closed lock. See `hold_state` for the other ways.
    pub status: HoldState,
    /// Set if it was revoked individually, not by `revoked_up_to`.
    pub revoked: Option<Revoked>,
}

/// When a hold was revoked, and by whom.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Revoked {
    pub at: u64,
    #[serde(with = "stored")]
    pub by: Operator,
}

/// Holds with a fence up to this one are revoked.
#[derive(Clone, Debug, Default, PartialEq, Hash, Serialize, Deserialize)]
pub struct RevokedUpTo {
    pub fence: u64,
    pub how: Option<Ending>,
    #[serde(with = "stored")]
    pub by: Operator,
    pub at: u64,
}

/// Of the waiting requests that supersede, only the newest remains.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Newest {
    /// A time in microseconds. On one of several servers, the ticket on which they agreed.
    pub arrival: u64,
    pub token: String,
    #[serde(with = "stored")]
    pub client: ClientInfo,
}

/// What is over, and until when that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tombstone {
    pub until: u64,
    pub mark: Mark,
}

/// What a tombstone says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mark {
    /// A token that was released or withdrawn, or its ID: a request with it is rejected.
    Token(String),
    /// Beside that: how the request with this token ended, if its client did not end it.
    Ended(String, Ended),
    /// The generation and the largest fence of the holders for which the lock was closed.
    Closed(String, Fence),
}

/// How others ended a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ended {
    Removed(#[serde(with = "stored")] Operator),
    /// By a newer request, of this client.
    Superseded(#[serde(with = "stored")] ClientInfo),
}

/// A request with a position in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueueEntry {
    pub token: String,
    pub owner: Option<Owner>,
    pub mode: Mode,
    #[serde(with = "stored")]
    pub client: ClientInfo,
    pub since: u64,
    /// The time until which it is presumed alive.
    pub alive: u64,
    /// Whether it may enter a lock that its owner holds.
    pub reentrant: bool,
    pub ttl: u64,
    pub attempt: u64,
    /// The number that orders the queue.
    pub ticket: u64,
    pub origin: Origin,
    /// Whether it goes ahead of all waiters without this.
    pub next: bool,
}

/// Where the ticket of a waiter comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
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
pub struct Mail {
    pub token: String,
    pub message: Message,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// The waiter is the new head of the queue.
    Head,
    Nominated(Nomination),
    /// The waiter has another reason to ask again.
    Look,
}

impl QueueEntry {
    pub(super) fn is_alive(&self, now: u64) -> bool {
        self.alive >= now
    }

    /// The order of the queue.
    pub(super) fn order(&self) -> (bool, u64, &str) {
        (!self.next, self.ticket, &self.token)
    }
}

impl Hold {
    /// Takes over what the request of a waiter says. The rest depends on the grant.
    pub(super) fn of(waiter: QueueEntry) -> Self {
        let QueueEntry { token, owner, mode, client, since, ttl, attempt, .. } = waiter;
        let since = Some(since);
        Self { token, owner, mode, client, since, ttl, attempt, ..Self::default() }
    }

    pub(super) fn is_of_closed_lock(&self) -> bool {
        self.status == HoldState::Revoked
    }

    /// The order in which leases expire.
    pub(super) fn by_deadline(&self, other: &Self) -> Ordering {
        (self.deadline, &self.token).cmp(&(other.deadline, &other.token))
    }
}
