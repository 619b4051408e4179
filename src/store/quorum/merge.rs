//! What several servers say of a lock, as one.

use std::time::Duration;

use super::needed;
use crate::lock::Fence;
use crate::lock::view::{HistoryEntry, HoldState, Holder, ServerTime, State, View};

/// A holder as some of the servers see it.
struct Sighting {
    holder: Holder,
    lefts: Vec<Duration>,
    fences: Vec<Fence>,
    standings: Vec<HoldState>,
}

/// The lock as it is on `servers` servers, some of which have not told: a holder counts if it may
/// have as many of them as it needs. If `lenient`, the one with the most does, however few.
pub(super) fn merge(views: &[View], servers: usize, lenient: bool) -> View {
    let now = views.first().map_or(ServerTime(0), |view| view.now);
    let untold = servers.saturating_sub(views.len());
    let mut seen = holders(views, now);
    let most = seen.iter().map(|seen| seen.lefts.len()).max().unwrap_or(0);
    seen.retain(|seen| {
        let count = seen.lefts.len();
        count + untold >= needed(seen.holder.mode, servers) || lenient && count == most
    });
    let holders: Vec<Holder> = seen.into_iter().map(|seen| seen.settle(now, servers)).collect();
    let left = holders.iter().map(|holder| holder.deadline.since(now)).max();
    let foreign: Vec<&View> = views.iter().filter(|view| view.state == State::Foreign).collect();
    let is_foreign = !foreign.is_empty() && foreign.len() + untold > servers / 2;
    let state = match () {
        () if holders.iter().any(|holder| holder.standing == HoldState::Held) => State::Held,
        () if holders.iter().any(|holder| holder.standing == HoldState::Revoked) => State::Revoked,
        () if !holders.is_empty() => State::Cooling,
        () if is_foreign || lenient && !foreign.is_empty() => State::Foreign,
        () => State::Free,
    };
    View {
        now,
        state,
        mode: holders.first().map(|holder| holder.mode),
        ttl: match state {
            State::Foreign => foreign.iter().filter_map(|view| view.ttl).max(),
            _ => left,
        },
        fence: views.iter().filter_map(|view| view.fence).max(),
        // Each server has its own.
        life: String::new(),
        holder_count: holders.len().try_into().unwrap_or(u64::MAX),
        holders,
        waiter_count: 0,
        waiters: Vec::new(),
        history: history(views),
    }
}

/// The lock on a server where nobody has it, looked at when another was.
pub(super) fn free_like(view: &View) -> View {
    View {
        state: State::Free,
        mode: None,
        ttl: None,
        holders: Vec::new(),
        history: Vec::new(),
        ..view.clone()
    }
}

/// What most of those that have told remember, by the clock of each.
fn history(views: &[View]) -> Vec<HistoryEntry> {
    let remembers = |view: &View, id: &str| view.history.iter().any(|past| past.id == id);
    let mut all = Vec::<HistoryEntry>::new();
    for past in views.iter().flat_map(|view| &view.history) {
        let known = all.iter().any(|other| other.id == past.id);
        let told = views.iter().filter(|view| remembers(view, &past.id)).count();
        if !known && told > views.len() / 2 {
            all.push(past.clone());
        }
    }
    all.sort_by_key(|past| past.at);
    all
}

/// With all times by the clock of the first server.
fn holders(views: &[View], now: ServerTime) -> Vec<Sighting> {
    let mut all = Vec::<Sighting>::new();
    for view in views {
        for holder in &view.holders {
            let left = holder.deadline.since(view.now);
            let at = match all.iter().position(|seen| seen.holder.id == holder.id) {
                Some(at) => at,
                None => {
                    let moved = |time| now - view.now.since(time);
                    let (acquired, renewed) = (moved(holder.acquired), moved(holder.renewed));
                    let holder = Holder { acquired, renewed, ..holder.clone() };
                    let (lefts, fences, standings) = Default::default();
                    all.push(Sighting { holder, lefts, fences, standings });
                    all.len() - 1
                }
            };
            all[at].lefts.push(left);
            all[at].fences.push(holder.fence);
            all[at].standings.push(holder.standing);
        }
    }
    all
}

impl Sighting {
    /// It lasts for as long as enough servers keep it, and stands as enough of them say.
    fn settle(mut self, now: ServerTime, servers: usize) -> Holder {
        let enough = needed(self.holder.mode, servers).min(self.lefts.len());
        self.lefts.sort_unstable_by(|one, other| other.cmp(one));
        let left = self.lefts.get(enough.saturating_sub(1)).copied().unwrap_or_default();
        let held = self.standings.iter().filter(|s| **s == HoldState::Held).count();
        let standing = if held >= enough {
            HoldState::Held
        } else if self.standings.contains(&HoldState::Revoked) {
            HoldState::Revoked
        } else {
            HoldState::Cooling
        };
        let fence = most_common(&self.fences).unwrap_or(self.holder.fence);
        Holder { deadline: now + left, standing, fence, ..self.holder }
    }
}

/// The largest of those that are there most often.
pub(super) fn most_common(fences: &[Fence]) -> Option<Fence> {
    let count = |fence: &Fence| fences.iter().filter(|other| *other == fence).count();
    fences.iter().copied().max_by_key(|fence| (count(fence), *fence))
}
