//! One view of a lock from the views of several servers.

use std::time::Duration;

use super::majority::{most_common, required};
use crate::lock::Fence;
use crate::lock::view::{HistoryEntry, HoldState, Holder, ServerTime, State, View, Waiter};

/// A holder, with what each server that knows it reports.
struct Sighting {
    holder: Holder,
    lefts: Vec<Duration>,
    /// The longest that a server reports: one that got the hold late knows of no wait.
    waited: Option<Duration>,
    fences: Vec<Fence>,
    states: Vec<HoldState>,
}

/// The lock as it is on `servers` servers, of which those with a view have answered. A holder
/// counts if enough servers have it, assuming that those without an answer do. If `lenient`, the
/// holder that most servers have counts too, however few they are.
///
/// All times are by the clock of the first server.
pub(crate) fn merge(views: &[View], servers: usize, lenient: bool) -> View {
    let now = views.first().map_or(ServerTime(0), |view| view.now);
    let unanswered = servers.saturating_sub(views.len());
    let mut seen = holders(views, now);
    let most = seen.iter().map(|seen| seen.lefts.len()).max().unwrap_or(0);
    seen.retain(|seen| {
        let count = seen.lefts.len();
        count + unanswered >= required(seen.holder.mode, servers) || lenient && count == most
    });
    let holders: Vec<Holder> = seen.into_iter().map(|seen| seen.combine(now, servers)).collect();
    let left = holders.iter().map(|holder| holder.deadline.since(now)).max();
    let foreign: Vec<&View> = views.iter().filter(|view| view.state == State::Foreign).collect();
    let is_foreign = !foreign.is_empty() && foreign.len() + unanswered > servers / 2;
    let state = match () {
        () if holders.iter().any(|holder| holder.state == HoldState::Held) => State::Held,
        () if holders.iter().any(|holder| holder.state == HoldState::Revoked) => State::Revoked,
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
        // The life of the lock differs from server to server, so the merged view has none.
        life: String::new(),
        holder_count: holders.len().try_into().unwrap_or(u64::MAX),
        holders,
        waiter_count: waiter_count(views),
        waiters: waiters(views, now),
        history: history(views),
    }
}

/// The view of the same lock on a server where it is free.
pub(super) fn free_like(view: &View) -> View {
    View {
        state: State::Free,
        mode: None,
        ttl: None,
        holder_count: 0,
        holders: Vec::new(),
        waiter_count: 0,
        waiters: Vec::new(),
        history: Vec::new(),
        ..view.clone()
    }
}

/// How many waiters most of the servers count at least.
fn waiter_count(views: &[View]) -> u64 {
    let mut counts: Vec<u64> = views.iter().map(|view| view.waiter_count).collect();
    counts.sort_unstable();
    counts.get(counts.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// The waiters that most of the servers list. All servers order waiters with agreed tickets alike, so
/// the mean positions give the same order.
fn waiters(views: &[View], now: ServerTime) -> Vec<Waiter> {
    let mut all = Vec::<(Waiter, usize, usize)>::new();
    for view in views {
        for (position, waiter) in view.waiters.iter().enumerate() {
            match all.iter_mut().find(|(other, ..)| other.id == waiter.id) {
                Some((_, listings, positions)) => {
                    *listings += 1;
                    *positions += position;
                }
                None => {
                    let since = now - view.now.since(waiter.since);
                    all.push((Waiter { since, ..waiter.clone() }, 1, position));
                }
            }
        }
    }
    all.retain(|(_, listings, _)| *listings > views.len() / 2);
    all.sort_by(|(_, one, here), (_, other, there)| (here * other).cmp(&(there * one)));
    all.into_iter().map(|(waiter, ..)| waiter).collect()
}

/// The history that most of the servers remember, each entry by the clock of the server that it
/// came from, with the longest wait that a server reports.
fn history(views: &[View]) -> Vec<HistoryEntry> {
    let remembers = |view: &View, id: &str| view.history.iter().any(|past| past.id == id);
    let mut all = Vec::<HistoryEntry>::new();
    for past in views.iter().flat_map(|view| &view.history) {
        let known = all.iter().any(|other| other.id == past.id);
        let remembering = views.iter().filter(|view| remembers(view, &past.id)).count();
        if !known && remembering > views.len() / 2 {
            let same = views.iter().flat_map(|view| &view.history).filter(|it| it.id == past.id);
            all.push(HistoryEntry {
                waited: same.map(|it| it.waited).max().flatten(),
                ..past.clone()
            });
        }
    }
    all.sort_by_key(|past| past.at);
    all
}

/// The holders of all views, with all times by the clock of the first server.
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
                    let (lefts, waited, fences, states) = Default::default();
                    all.push(Sighting { holder, lefts, waited, fences, states });
                    all.len() - 1
                }
            };
            all[at].lefts.push(left);
            all[at].waited = all[at].waited.max(holder.waited);
            all[at].fences.push(holder.fence);
            all[at].states.push(holder.state);
        }
    }
    all
}

impl Sighting {
    /// The holder as enough servers see it: its lease expires when too few of them have it.
    fn combine(mut self, now: ServerTime, servers: usize) -> Holder {
        let enough = required(self.holder.mode, servers).min(self.lefts.len());
        self.lefts.sort_unstable_by(|one, other| other.cmp(one));
        let left = self.lefts.get(enough.saturating_sub(1)).copied().unwrap_or_default();
        let held = self.states.iter().filter(|s| **s == HoldState::Held).count();
        let state = if held >= enough {
            HoldState::Held
        } else if self.states.contains(&HoldState::Revoked) {
            HoldState::Revoked
        } else {
            HoldState::Cooling
        };
        let fence = most_common(&self.fences).unwrap_or(self.holder.fence);
        Holder { deadline: now + left, waited: self.waited, state, fence, ..self.holder }
    }
}
