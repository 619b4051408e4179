//! The holders and waiters of a lock as others see them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rules::lease::{CLAIM_WINDOW, renewal_interval};
use crate::rules::{ClientInfo, Fence, Mode, Owner, Record, ServerTime, Slot, show, variant};
use crate::text::{at_most, printable};

/// One hold, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The first 8 characters of the token.
    pub id: String,
    /// `None` if it was lost, or if this only keeps the lock closed.
    pub owner: Option<Owner>,
    /// The IDs of the holders that a closed lock waits for.
    pub closed_for: Vec<String>,
    pub mode: Mode,
    pub client: ClientInfo,
    pub fence: Fence,
    pub acquired: ServerTime,
    /// How long it waited for the grant, if known.
    pub waited: Option<Duration>,
    pub renewed: ServerTime,
    pub deadline: ServerTime,
    pub state: HoldState,
    /// Its number in a lock with slots; `None` in another mode.
    pub slot: Option<Slot>,
}

/// The id of the hold of a closed lock: nobody's, and shorter than any other.
pub(crate) const CLOSED: &str = "closed";

impl Holder {
    /// The holder in a record; `None` if it stands in a way that only later versions know.
    pub(crate) fn of(record: &Record<'_>) -> Option<Self> {
        let (id, owner) = (shown_id(record), at_most(255, record.get("owner")));
        let (owner, closed_for) = match owner {
            ids if id == CLOSED => (None, ids.split_whitespace().map(str::to_owned).collect()),
            "" => (None, Vec::new()),
            owner => (Some(Owner::stored(owner.to_owned())), Vec::new()),
        };
        Some(Self {
            id,
            owner,
            closed_for,
            mode: record.mode().unwrap_or_default(),
            client: ClientInfo::of(record),
            fence: Fence(record.number("fence")),
            acquired: record.time("acquired"),
            waited: record.waited(),
            renewed: record.time("renewed"),
            deadline: record.time("deadline"),
            state: variant(record.get("holder"))?,
            slot: record.get("slot").parse().ok(),
        })
    }

    /// Whether it only keeps the lock closed, because the server lost its data.
    pub(crate) fn is_closing(&self) -> bool {
        self.id == CLOSED
    }

    /// The IDs of those that may be at work: its own, or those that a closed lock waits for.
    pub fn ids(&self) -> &[String] {
        if self.is_closing() { &self.closed_for } else { std::slice::from_ref(&self.id) }
    }

    /// When its lease was last renewed, if ever. To claim a grant, a waiter renews it once too, but
    /// sooner than a holder does.
    pub(crate) fn last_renewal(&self) -> Option<ServerTime> {
        let first = renewal_interval(self.deadline.since(self.renewed)) / 2;
        let first = first.min(Duration::from_millis(CLAIM_WINDOW));
        (self.renewed.since(self.acquired) >= first).then_some(self.renewed)
    }

    /// What keeps the lock closed.
    pub(crate) fn closing(&self, now: ServerTime) -> String {
        let left = show(self.deadline.since(now));
        format!("closed for up to {left}: the server lost its data while the lock was held")
    }
}

/// The state of a hold.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum HoldState {
    #[default]
    Held,
    /// It no longer holds the lock, but its holder may not know yet.
    Revoked,
    /// Its holder released it before its minimum time was up.
    Cooling,
}

/// One waiter, as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The first 8 characters of the token.
    pub id: String,
    pub mode: Mode,
    pub client: ClientInfo,
    pub since: ServerTime,
    /// Whether it goes ahead of all waiters without this.
    pub next: bool,
}

impl Waiter {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        Self {
            id: shown_id(record),
            mode: record.mode().unwrap_or_default(),
            client: ClientInfo::of(record),
            since: record.time("since"),
            next: !record.get("waiter").is_empty(),
        }
    }
}

fn shown_id(record: &Record<'_>) -> String {
    printable(at_most(255, record.get("id")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_that_was_claimed_is_not_renewed_yet() {
        for (ttl, renewed, is_renewal) in [
            (30_000, 0, false),
            (30_000, 1_999, false),
            (30_000, 10_000, true),
            (100, 10, false),
            (100, 33, true),
        ] {
            let (renewed, deadline) = (ServerTime(renewed), ServerTime(renewed + ttl));
            let hold = Holder { renewed, deadline, ..Holder::default() };
            assert_eq!(hold.last_renewal(), is_renewal.then_some(renewed), "{ttl}");
        }
    }
}
