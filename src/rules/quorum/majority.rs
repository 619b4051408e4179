//! How many servers are enough, and what most of them say.

use std::time::Duration;

use crate::rules::{Held, Instant, Reason};

/// How long the other servers are awaited at least after a majority has answered.
const GRACE: Duration = Duration::from_millis(10);

/// How many of `servers` servers a hold needs, as in Redlock. Any two holds that exclude each other,
/// or have the same slot, then meet on at least one server.
pub fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// Until when the other servers are awaited after a majority has answered at `answered`: for as
/// long as that took from the beginning, but at least for 10 ms.
pub fn grace_until(begun: Instant, answered: Instant) -> Instant {
    answered + answered.since(begun).max(GRACE)
}

/// The slot that most members gave, and the fencing token that most of these gave; the largest of
/// several that are equally common.
pub(super) fn most_common(holds: &[Held]) -> Option<Held> {
    let in_slot = |hold: &Held| holds.iter().filter(|other| other.1 == hold.1).count();
    let same = |hold: &Held| holds.iter().filter(|other| *other == hold).count();
    holds.iter().copied().max_by_key(|hold| (in_slot(hold), same(hold), *hold))
}

pub(super) fn first_known(reasons: impl Iterator<Item = Reason>) -> Reason {
    reasons
        .reduce(|one, other| if one.is_known() { one } else { other })
        .unwrap_or(Reason::unknown())
}
