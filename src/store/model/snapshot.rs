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
    /// The value of its field in the state; see `lua/details.lua`.
    pub(in crate::store) details: Option<String>,
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
    /// The field of the state that describes the hold.
    pub(in crate::store) fn field(&self) -> String {
        ["details:", &self.token].concat()
    }

    fn hold(self) -> Hold {
        let Self { token, deadline, details } = self;
        let lines: Vec<&str> = details.as_deref().unwrap_or_default().splitn(16, '\n').collect();
        // A text in another form has no details.
        let [mode, owner, _, _, _, fence, acquired, renewed, _, _, _, standing, _, _, slot, about] =
            <[&str; 16]>::try_from(lines).unwrap_or_default();
        let acquired = acquired.parse().ok();
        Hold {
            owner: owner.to_owned(),
            mode: mode.to_owned().try_into().unwrap_or(Mode::Exclusive),
            about: about.to_owned(),
            fence: fence.parse().unwrap_or(0),
            acquired: acquired.unwrap_or(0),
            // Without a queue, as `first_asked` in `lua/holds.lua`.
            since: acquired.filter(|_| standing != "revoked"),
            renewed: renewed.parse().ok(),
            slot: slot.parse().ok(),
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
