//! How many members must give an answer before it decides a request.
//!
//! One member may have missed a grant, a release or a removal, have lost its data, or have a wrong
//! clock. So no request is refused on the word of a single member, with two exceptions: what a newer
//! request or an operator has decided for all members, and a lease that the others may have forgotten.
//!
//! | request | answer | takes |
//! | --- | --- | --- |
//! | acquire | nominated | majority |
//! | acquire | granted with one fencing token and slot | majority |
//! | acquire | nested, upgrade, ended | blocking |
//! | acquire | superseded, removed | one |
//! | acquire | kept out by older waiters | blocking |
//! | acquire | held by the same holder | majority |
//! | acquire | held by more holders than are listed | blocking |
//! | acquire | a number that is too far ahead | majority |
//! | acquire | a holder with a longer lease than the uptime of the others | one |
//! | acquire | a holder, while too few others answer | one |
//! | renew | renewed in one slot | majority |
//! | renew | not held | blocking |
//! | release | released, unless not held | one |
//! | release | not held | blocking |
//! | remove | revoked, removed, gone, several | one |
//! | revoke, inspect, list | a holder; a member without an answer counts | majority |
//!
//! The numbers of a request, its ticket and its fencing token, are the largest of all members that
//! most others believe. A busy answer, a queue position and a failure decide nothing.

use std::time::Duration;

pub use crate::rules::servers::majority;
use crate::rules::{Answer, Held, Instant, Reason};

/// How long the other servers are awaited at least after a majority has answered.
const GRACE: Duration = Duration::from_millis(10);

/// How many servers are so many that the others are not a majority. If a majority has confirmed a
/// release, fewer have missed it.
pub(super) fn blocking(servers: usize) -> usize {
    servers + 1 - majority(servers)
}

/// How many of `servers` servers must give an answer before it ends a request to acquire the lock.
/// `None`: it does not.
pub(super) fn needed_to_refuse(answer: &Answer, servers: usize) -> Option<usize> {
    match answer {
        // A majority has agreed on the newer ticket, and an operator means all servers.
        Answer::Superseded(_) | Answer::Removed(_) => Some(1),
        Answer::Nested | Answer::Upgrade | Answer::Ended(_) => Some(blocking(servers)),
        Answer::Granted { .. } | Answer::Busy(_) | Answer::Queued { .. } => None,
    }
}

/// Until when the other servers are awaited after a majority has answered at `answered`: for as
/// long as that took from the beginning, but at least for 10 ms.
pub(crate) fn grace_until(begun: Instant, answered: Instant) -> Instant {
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
