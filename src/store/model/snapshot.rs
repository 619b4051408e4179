//! Reads a lock as the scripts keep it on a server, but without a script. A script for each of
//! thousands of locks would take too long.

use super::lock::{Floor, Guard, Hold, Lock};
use super::transaction::Transaction;
use crate::lock::Mode;
use crate::lock::view::{HoldState, View};

/// What the keys of a lock contain; see `lua/lock.lua`. A field that is missing is `None`.
pub(in crate::store) struct Snapshot {
    pub(in crate::store) guard: Option<String>,
    /// The values of `FIELDS`.
    pub(in crate::store) fields: [Option<String>; Self::FIELDS.len()],
    pub(in crate::store) holds: Vec<RecordedHold>,
}

/// A hold on record.
pub(in crate::store) struct RecordedHold {
    pub(in crate::store) token: String,
    /// When the hold expires, in milliseconds on the server's clock.
    pub(in crate::store) deadline: u64,
    /// The values of `DETAILS`.
    pub(in crate::store) details: [Option<String>; Self::DETAILS.len()],
}

impl Snapshot {
    /// The fields of the state that describe the lock. Only a lock with a queue has a ticket.
    pub(in crate::store) const FIELDS: [&str; 5] = ["guard", "mode", "fence", "floor", "ticket"];

    /// Whether the lock is simply held, and has no waiters.
    fn is_plain(&self) -> bool {
        let [written, _, _, _, ticket] = &self.fields;
        self.guard.is_some() && self.guard == *written && ticket.is_none()
    }

    /// The lock, with empty values for details that the server evicted. `None` unless it is plain.
    pub(in crate::store) fn view(self, now: u64) -> Option<View> {
        if !self.is_plain() {
            return None;
        }
        let Self { guard, fields: [written, mode, fence, floor, _], holds } = self;
        let mut lock = Lock {
            written,
            guard: guard.map(|value| Guard { value, until: None }),
            mode: mode.and_then(|mode| mode.try_into().ok()),
            fence: parsed(fence).unwrap_or(0),
            floor: Floor { fence: parsed(floor).unwrap_or(0), ..Floor::default() },
            holds: holds.into_iter().map(RecordedHold::hold).collect(),
            ..Lock::default()
        };
        Some(Transaction::begin(&mut lock, now).view(0, usize::MAX))
    }
}

impl RecordedHold {
    /// The fields of the state that describe one hold; the hold's token and a colon precede each.
    pub(in crate::store) const DETAILS: [&str; 8] =
        ["owner", "mode", "about", "fence", "acquired", "renewed", "standing", "slot"];

    fn hold(self) -> Hold {
        let Self { token, deadline, details } = self;
        let [owner, mode, about, fence, acquired, renewed, standing, slot] = details;
        let acquired = parsed(acquired);
        let standing = standing.unwrap_or_default();
        Hold {
            owner: owner.unwrap_or_default(),
            mode: mode.and_then(|mode| mode.try_into().ok()).unwrap_or(Mode::Exclusive),
            about: about.unwrap_or_default(),
            fence: parsed(fence).unwrap_or(0),
            acquired: acquired.unwrap_or(0),
            // Without a queue, as `first_asked` in `lua/holds.lua`.
            since: acquired.filter(|_| standing != "revoked"),
            renewed: parsed(renewed),
            slot: parsed(slot),
            // Who revoked it does not matter here.
            standing: match standing.split(' ').next() {
                Some("revoked") => HoldState::Revoked,
                Some("cooling") => HoldState::Cooling,
                _ => HoldState::Held,
            },
            token,
            deadline,
            named: false,
            keep_until: 0,
            ttl: 0,
            attempt: 0,
            revoked: None,
        }
    }
}

fn parsed<T: std::str::FromStr>(value: Option<String>) -> Option<T> {
    value?.parse().ok()
}
