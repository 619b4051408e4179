//! What a lock consists of, and the limits that apply everywhere. The serialized names stay those
//! of earlier versions.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::lock::Mode;
use crate::lock::view::{Ending, HoldState};

/// How long a granted lock waits for the waiter to claim it, in milliseconds.
pub(super) const CLAIM_WINDOW: u64 = 2_000;

/// A day, in milliseconds.
pub(super) const DAY: u64 = 24 * 3_600 * 1_000;

/// The longest lease, a week, in milliseconds.
pub(super) const LONGEST_TTL: u64 = 7 * DAY;

/// How many holds or waiters one call drops or admits at most. Small in tests, so that some work
/// remains for the next call.
pub(super) const BATCH: usize = if cfg!(test) { 3 } else { 100 };

/// How many holders and waiters one reply lists at most.
pub(super) const MAX_LISTED: usize = 100;

/// Everything about one lock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::store) struct Lock {
    /// The guard: the token that other tools see as the value of the lock.
    pub(super) guard: Option<Guard>,
    /// The guard as rlock last wrote it.
    pub(super) written: Option<String>,
    /// The mode of the holds as a whole.
    pub(super) mode: Option<Mode>,
    /// The last fencing token granted: microseconds since the epoch, or more; 0 if there is none.
    pub(super) fence: u64,
    /// A random mark that changes when the lock is forgotten.
    #[serde(default)]
    pub(super) life: String,
    pub(super) holds: Vec<Hold>,
    /// First come, first served.
    pub(super) queue: Vec<Waiter>,
    /// The waiter that knows it is the head of the queue.
    #[serde(default, rename = "told")]
    pub(super) notified: Option<String>,
    #[serde(default, rename = "revocation")]
    pub(super) floor: Floor,
    /// How the last holds ended, the latest last.
    #[serde(default, rename = "past")]
    pub(super) history: Vec<HistoryEntry>,
    /// Tokens that were released or given up.
    #[serde(default)]
    pub(super) over: Vec<Mark>,
    /// Waiters that have been woken since the last call of `take_woken`.
    #[serde(skip)]
    pub(super) woken: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Guard {
    pub(super) value: String,
    pub(super) until: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) token: String,
    pub(super) owner: String,
    /// Whether a user chose the owner's name, so that it can enter from anywhere.
    #[serde(default)]
    pub(super) named: bool,
    pub(super) mode: Mode,
    pub(super) about: String,
    pub(super) fence: u64,
    pub(super) acquired: u64,
    pub(super) renewed: u64,
    pub(super) deadline: u64,
    /// The time until which it is kept even if released sooner; 0 for none.
    #[serde(rename = "keep")]
    pub(super) keep_until: u64,
    /// The length of its lease.
    #[serde(default)]
    pub(super) ttl: u64,
    /// The number of the request that was granted.
    #[serde(default)]
    pub(super) attempt: u64,
    /// `Revoked` only if the hold was reinstated. `hold_state` also applies the floor.
    pub(super) standing: HoldState,
}

/// Holds with a fence up to this one are revoked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Floor {
    #[serde(rename = "floor")]
    pub(super) fence: u64,
    pub(super) how: Option<Ending>,
    /// Who revoked them; empty if unknown.
    pub(super) by: String,
    pub(super) at: u64,
}

/// A request with this token is rejected until this time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) token: String,
    pub(super) until: u64,
}

/// How a hold ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HistoryEntry {
    pub(super) ending: Ending,
    pub(super) at: u64,
    /// In the form that `Outcome` prints.
    pub(super) outcome: String,
    pub(super) id: String,
    pub(super) acquired: u64,
    pub(super) fence: u64,
    pub(super) mode: Mode,
    pub(super) by: String,
    pub(super) about: String,
}

/// A request with a position in the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub(super) token: String,
    pub(super) owner: String,
    /// Whether a user chose the owner's name.
    #[serde(default)]
    pub(super) named: bool,
    pub(super) mode: Mode,
    pub(super) about: String,
    pub(super) since: u64,
    /// The time until which it is presumed alive.
    pub(super) alive: u64,
    /// Whether it may enter a lock that its owner holds.
    pub(super) reentrant: bool,
    #[serde(default)]
    pub(super) ttl: u64,
    #[serde(default)]
    pub(super) attempt: u64,
}

impl Hold {
    /// The order in which leases expire.
    pub(super) fn by_deadline(&self, other: &Self) -> Ordering {
        (self.deadline, &self.token).cmp(&(other.deadline, &other.token))
    }
}
