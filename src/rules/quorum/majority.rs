//! How many servers are enough, and what most of them say.

use std::time::Duration;

use crate::rules::{Fence, Instant, Mode, Reason};

/// How long the other servers are awaited at least after a majority has answered.
const GRACE: Duration = Duration::from_millis(10);

/// How many of `servers` servers a hold with this mode needs. For an exclusive or shared hold that
/// is a majority, as in Redlock.
///
/// Any two holds that exclude each other then meet on at least one server. S servers have N · S
/// slots. If each hold takes more than N · S / (N + 1) of them, N + 1 holds cannot exist.
pub fn required(mode: Mode, servers: usize) -> usize {
    let slots = mode.slots().map_or(1, |slots| slots.get() as usize);
    (servers.saturating_mul(slots)) / (slots.saturating_add(1)) + 1
}

/// Until when the other servers are awaited after a majority has answered at `answered`: for as
/// long as that took from the beginning, but at least for 10 ms.
pub fn grace_until(begun: Instant, answered: Instant) -> Instant {
    answered + answered.since(begun).max(GRACE)
}

/// The fencing token that most members gave; the largest of several that are equally common.
pub(super) fn most_common(fences: &[Fence]) -> Option<Fence> {
    let count = |fence: &Fence| fences.iter().filter(|other| *other == fence).count();
    fences.iter().copied().max_by_key(|fence| (count(fence), *fence))
}

/// The first known reason.
pub(super) fn first_known(reasons: impl Iterator<Item = Reason>) -> Reason {
    reasons
        .reduce(|one, other| if one.is_known() { one } else { other })
        .unwrap_or(Reason::unknown())
}
