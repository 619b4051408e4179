//! One view of a lock from the views of several servers.

use super::majority::{majority, most_common};
use crate::rules::quorum::Held;
use crate::rules::{Ending, HistoryEntry, HoldState, Holder, ServerTime, State, View, Waiter};

/// The lock as it is on `servers` servers, of which those with a view have answered. A holder
/// counts if enough servers have it, assuming that those without an answer do. If `lenient`, the
/// holder that most servers have counts too, however few they are.
///
/// All times are by the middle one of the clocks, because a minority may be wrong.
pub(crate) fn merge(views: &[View], servers: usize, lenient: bool) -> View {
    let now = middle(views, |view| view.now).map_or(ServerTime::default(), |view| view.now);
    let views: &[View] = &views.iter().map(|view| by_clock(view, now)).collect::<Vec<_>>();
    let unanswered = servers.saturating_sub(views.len());
    let holders = views.iter().flat_map(|view| &view.holders);
    let mut listed = grouped(holders, |holder| (&holder.id, holder.slot));
    let most = listed.iter().map(Vec::len).max().unwrap_or(0);
    listed.retain(|same| {
        let count = same.len();
        count + unanswered >= majority(servers) || lenient && count == most
    });
    let holders: Vec<Holder> = listed.iter().map(|same| combined(same, servers)).collect();
    let left = holders.iter().map(|holder| holder.deadline.since(now)).max();
    let foreign: Vec<&View> = views.iter().filter(|view| view.state == State::Foreign).collect();
    let is_foreign = !foreign.is_empty() && foreign.len() + unanswered > servers / 2;
    let is_foreign = is_foreign || lenient && !foreign.is_empty();
    let other = if is_foreign { State::Foreign } else { State::Free };
    let state = State::of(&holders).unwrap_or(other);
    let waiters = waiters(views);
    View {
        now,
        state,
        mode: holders.first().map(|holder| holder.mode),
        ttl: match state {
            State::Foreign => foreign.iter().filter_map(|view| view.ttl).max(),
            _ => left,
        },
        is_of_rlock: foreign.iter().any(|view| view.is_of_rlock),
        fence: views.iter().filter_map(|view| view.fence).max(),
        unlisted_holders: unlisted(holders.len(), views, |it| {
            (it.holder_count(), it.unlisted_holders)
        }),
        holders,
        unlisted_waiters: unlisted(waiters.len(), views, |it| {
            (it.waiter_count(), it.unlisted_waiters)
        }),
        waiters,
        history: history(views),
        skipped: middle(views, |view| view.skipped.as_ref().map(|it| (it.count, it.at)))
            .and_then(|view| view.skipped.clone()),
        // The generation of the lock differs from server to server, so the merged view has none.
        ..View::default()
    }
}

/// The same view by a clock that shows `now`.
fn by_clock(view: &View, now: ServerTime) -> View {
    let mut view = view.clone();
    let then = std::mem::replace(&mut view.now, now);
    let moved = |time: &mut ServerTime| *time = now + time.since(then) - then.since(*time);
    for holder in &mut view.holders {
        let Holder { acquired, renewed, deadline, .. } = holder;
        [acquired, renewed, deadline].into_iter().for_each(moved);
    }
    view.waiters.iter_mut().for_each(|waiter| moved(&mut waiter.since));
    for past in &mut view.history {
        [&mut past.acquired, &mut past.at].into_iter().for_each(moved);
    }
    view.skipped.iter_mut().for_each(|skipped| moved(&mut skipped.at));
    view
}

/// The view of the same lock on a server where it is free.
pub(super) fn free_like(view: &View) -> View {
    View { now: view.now, fence: view.fence, ..View::default() }
}

/// The view in the middle of this order: most of the servers have as much at least.
fn middle<K: Ord>(views: &[View], key: impl Fn(&View) -> K) -> Option<&View> {
    let mut views: Vec<&View> = views.iter().collect();
    views.sort_by_key(|view| key(view));
    views.get(views.len().saturating_sub(1) / 2).copied()
}

/// How many are missing from the merged list: by the largest count of a server that does not list all.
fn unlisted(listed: usize, views: &[View], of: impl Fn(&View) -> (u64, u64)) -> u64 {
    let counts = views.iter().map(of).filter(|(_, unlisted)| *unlisted > 0).map(|(count, _)| count);
    counts.max().unwrap_or(0).saturating_sub(listed as u64)
}

/// The waiters that most of the servers list. All servers order waiters with agreed tickets alike,
/// so the mean positions give the same order.
fn waiters(views: &[View]) -> Vec<Waiter> {
    let listed = views.iter().flat_map(|view| view.waiters.iter().enumerate());
    let mut all = grouped(listed, |(_, waiter)| &waiter.id);
    all.retain(|same| same.len() > views.len() / 2);
    let positions = |same: &[(usize, &Waiter)]| same.iter().map(|(it, _)| it).sum::<usize>();
    all.sort_by(|one, other| (positions(one) * other.len()).cmp(&(positions(other) * one.len())));
    let earliest = |same: &[(usize, &Waiter)]| same.iter().map(|(_, it)| it.since).min();
    let waiter = |same: &Vec<(usize, &Waiter)>| {
        let first = same[0].1;
        Waiter { since: earliest(same).unwrap_or(first.since), ..first.clone() }
    };
    all.iter().map(waiter).collect()
}

/// The history that most of the servers remember.
fn history(views: &[View]) -> Vec<HistoryEntry> {
    let last = views.iter().flat_map(|view| {
        // A server has two entries for a hold that expired there and was restored.
        let is_last = |(index, past): &(usize, &HistoryEntry)| {
            view.history[index + 1..].iter().all(|later| later.id != past.id)
        };
        view.history.iter().enumerate().filter(is_last).map(|(_, past)| past)
    });
    let mut all = grouped(last, |past| &past.id);
    all.retain(|same| same.len() > views.len() / 2);
    let mut history: Vec<HistoryEntry> = all.iter().map(|same| agreed(same)).collect();
    history.sort_by_key(|past| past.at);
    history
}

/// How a hold ended, as most of these entries report it, whatever their order. It ended when too
/// few servers had it: one that was frozen may have released it later, or may only have seen it
/// expire. A server that got the hold late knows neither when it began nor of any wait.
fn agreed(same: &[&HistoryEntry]) -> HistoryEntry {
    let mut same = same.to_vec();
    same.sort_by_key(|past| (past.ending == Ending::Expired, past.at, past.ending as u8));
    let alike = |past: &HistoryEntry| same.iter().filter(|it| it.ending == past.ending).count();
    let most = same.iter().map(|past| alike(past)).max();
    let first = same.iter().find(|past| Some(alike(past)) == most).unwrap_or(&same[0]);
    let mut ended = same.iter().filter(|past| past.ending == first.ending);
    let entry = ended.nth(most.unwrap_or(1).saturating_sub(1) / 2).unwrap_or(first);
    HistoryEntry {
        acquired: same.iter().map(|past| past.acquired).min().unwrap_or(entry.acquired),
        waited: same.iter().map(|past| past.waited).max().flatten(),
        ..(*entry).clone()
    }
}

/// One list for each key, with what each server reports.
fn grouped<T: Copy, K: PartialEq>(
    reports: impl Iterator<Item = T>,
    key: impl Fn(T) -> K,
) -> Vec<Vec<T>> {
    let mut all = Vec::<Vec<T>>::new();
    for report in reports {
        match all.iter_mut().find(|same| key(same[0]) == key(report)) {
            Some(same) => same.push(report),
            None => all.push(vec![report]),
        }
    }
    all
}

/// The holder as enough servers see it: its lease expires when too few of them have it. A server
/// that got the hold late knows neither when it began nor of any wait.
fn combined(same: &[&Holder], servers: usize) -> Holder {
    let first = same[0];
    let enough = majority(servers).min(same.len());
    let mut deadlines: Vec<ServerTime> = same.iter().map(|holder| holder.deadline).collect();
    deadlines.sort_unstable();
    let held = same.iter().filter(|holder| holder.state == HoldState::Held).count();
    let state = if held >= enough {
        HoldState::Held
    } else if same.iter().any(|holder| holder.state == HoldState::Revoked) {
        HoldState::Revoked
    } else {
        HoldState::Cooling
    };
    let held: Vec<Held> = same.iter().map(|holder| (holder.fence, holder.slot)).collect();
    Holder {
        acquired: same.iter().map(|holder| holder.acquired).min().unwrap_or(first.acquired),
        waited: same.iter().map(|holder| holder.waited).max().flatten(),
        renewed: same.iter().map(|holder| holder.renewed).max().unwrap_or(first.renewed),
        deadline: deadlines[same.len() - enough],
        fence: most_common(&held).map_or(first.fence, |(fence, _)| fence),
        state,
        ..first.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{ClientInfo, Fence, Mode, Skipped, Slot};
    use std::time::Duration;

    /// A lock on a server whose clock shows `clock`: `id` has held it for `age`, and `past` has
    /// ended `ago`, after `held`.
    fn view(clock: u64, id: &str, age: u64, past: &[(&str, u64, u64)]) -> View {
        let holder = Holder {
            id: id.into(),
            acquired: ServerTime(clock - age),
            renewed: ServerTime(clock - age),
            deadline: ServerTime(clock + 10_000),
            ..Holder::default()
        };
        let entry = |&(id, ago, held): &(&str, u64, u64)| HistoryEntry {
            at: ServerTime(clock - ago),
            id: id.into(),
            acquired: ServerTime(clock - ago - held),
            ..HistoryEntry::default()
        };
        View {
            now: ServerTime(clock),
            holders: vec![holder],
            history: past.iter().map(entry).collect(),
            ..View::default()
        }
    }

    #[test]
    fn ages_and_the_history_are_the_same_whichever_server_is_listed_first() {
        let mut views = [
            // It was restarted, and got the present hold back 3 s ago. A key was deleted there.
            view(1_000_000, "c", 3_000, &[("d", 10_000, 0)]),
            view(
                1_060_000,
                "c",
                9_000,
                &[("a", 40_000, 5_000), ("b", 20_000, 1_000), ("d", 10_000, 0)],
            ),
            // It was away when the hold of a was released, got that of b late, and was frozen when
            // that was released.
            view(900_000, "c", 9_000, &[("a", 42_000, 3_000), ("b", 18_000, 200)]),
        ];
        views[0].history[0].ending = Ending::Deleted;
        views[2].history[0].ending = Ending::Expired;
        for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0], [1, 0, 2]] {
            let merged = merge(&order.map(|server| views[server].clone()), 3, false);
            assert_eq!(merged.now, ServerTime(1_000_000), "{order:?}");
            let ago = |time: ServerTime| merged.now.since(time).as_millis();
            let holder = &merged.holders[0];
            assert_eq!((ago(holder.acquired), ago(holder.renewed)), (9_000, 3_000), "{order:?}");
            let past: Vec<_> = merged
                .history
                .iter()
                .map(|past| (past.id.as_str(), ago(past.at), ago(past.acquired)))
                .collect();
            let ended = [("a", 40_000, 45_000), ("b", 20_000, 21_000), ("d", 10_000, 10_000)];
            assert_eq!(past, ended, "{order:?}");
            assert_eq!(merged.history[2].ending, Ending::Released, "{order:?}");
        }
    }

    #[test]
    fn a_merged_lock_has_what_most_of_the_servers_report() {
        let waiter = |id: char| Waiter {
            id: id.into(),
            mode: Mode::Shared,
            client: ClientInfo::default(),
            since: ServerTime(0),
            next: false,
        };
        let skipped = |count| {
            let (at, id) = (ServerTime(0), String::new());
            Some(Box::new(Skipped { count, at, id, client: ClientInfo::default() }))
        };
        let view = |waiters: &str, ttl, waited, count| View {
            state: State::Foreign,
            ttl: Some(Duration::from_secs(ttl)),
            waiters: waiters.chars().map(waiter).collect(),
            history: vec![HistoryEntry { waited, ..HistoryEntry::default() }],
            skipped: skipped(count),
            is_of_rlock: count == 2,
            ..View::default()
        };
        let waited = Some(Duration::from_secs(1));
        let views =
            [view("pqxba", 5, waited, 3), view("pqxab", 7, None, 2), view("pqxay", 6, None, 9)];
        let merged = merge(&views, 3, false);
        let order: String = merged.waiters.iter().map(|waiter| waiter.id.as_str()).collect();
        assert_eq!(order, "pqxab");
        assert!(merged.is_of_rlock);
        assert_eq!(merged.ttl, Some(Duration::from_secs(7)));
        assert_eq!(merged.skipped.map(|skipped| skipped.count), Some(3));
        assert_eq!(merged.history[0].waited, waited);
    }

    /// A server with these holds: of whom, in which slot, how many seconds are left, and whether it
    /// is held, revoked or cooling. `x` is another tool's.
    fn server(holds: &str) -> View {
        if holds == "x" {
            return View { state: State::Foreign, ..View::default() };
        }
        let hold = |word: &str| {
            let parts: Vec<&str> = word.split('/').collect();
            let [id, slot, left, state] = parts[..] else { panic!("{word}") };
            Holder {
                id: id.into(),
                slot: slot.parse().ok().and_then(Slot::new),
                deadline: ServerTime(left.parse::<u64>().unwrap() * 1_000),
                fence: Fence(left.parse().unwrap()),
                state: match state {
                    "h" => HoldState::Held,
                    "r" => HoldState::Revoked,
                    _ => HoldState::Cooling,
                },
                ..Holder::default()
            }
        };
        View { holders: holds.split_whitespace().map(hold).collect(), ..View::default() }
    }

    #[test]
    fn a_holder_counts_for_as_long_as_enough_servers_have_it() {
        for (answers, servers, lenient, expected) in [
            (&["a/0/10/h", "a/0/20/h", "a/0/30/h"][..], 3, false, "Held 20s a Held"),
            (&["a/0/10/h", "a/0/20/h", ""], 3, false, "Held 10s a Held"),
            (&["a/0/10/h", "", ""], 3, false, "Free"),
            (&["a/0/10/h", "", ""], 3, true, "Held 10s a Held"),
            (&["a/0/10/h", "b/0/20/h", "a/0/30/h"], 3, true, "Held 10s a Held"),
            // Those without an answer may have it.
            (&["a/0/10/h", ""], 3, false, "Held 10s a Held"),
            (&["a/0/10/h", "", ""], 5, false, "Held 10s a Held"),
            (&["a/0/10/h", "", "", ""], 5, false, "Free"),
            // One token may have another slot on a minority.
            (&["a/1/10/h", "a/1/20/h", "a/2/30/h"], 3, false, "Held 10s a Held"),
            (&["a/1/10/h b/2/40/h", "a/1/20/h b/2/50/h"], 3, false, "Held 40s a Held b Held"),
            (&["a/0/10/h", "a/0/20/r", "a/0/30/r"], 3, false, "Revoked 20s a Revoked"),
            (&["a/0/10/h", "a/0/20/h", "a/0/30/r"], 3, false, "Held 20s a Held"),
            (&["a/0/10/c", "a/0/20/c", "a/0/30/h"], 3, false, "Cooling 20s a Cooling"),
            (&["a/0/10/c", "a/0/20/c", "a/0/30/r"], 3, false, "Revoked 20s a Revoked"),
            (&["x", "x", ""], 3, false, "Foreign"),
            (&["x", "", ""], 3, false, "Free"),
            (&["x", "", ""], 3, true, "Foreign"),
            (&["x", ""], 3, false, "Foreign"),
            (&["x", "", ""], 5, false, "Foreign"),
            (&["x", "", "", ""], 5, false, "Free"),
        ] {
            let views: Vec<View> = answers.iter().map(|holds| server(holds)).collect();
            let merged = merge(&views, servers, lenient);
            let mut shown = format!("{:?}", merged.state);
            shown += &merged.ttl.map_or(String::new(), |left| format!(" {}s", left.as_secs()));
            for holder in &merged.holders {
                shown += &format!(" {} {:?}", holder.id, holder.state);
            }
            assert_eq!(shown, expected, "{answers:?} of {servers}");
            assert_eq!(merged.unlisted_holders, 0, "{answers:?}");
        }
    }
    #[test]
    fn holders_and_waiters_that_are_not_listed_count_as_on_the_server_that_has_most() {
        let of = |unlisted| View {
            unlisted_holders: unlisted,
            unlisted_waiters: 2 * unlisted,
            ..server("a/0/10/h")
        };
        for (unlisted, counted) in [([0, 0, 0], (1, 0)), ([0, 98, 100], (101, 200))] {
            let merged = merge(&unlisted.map(of), 3, false);
            assert_eq!((merged.holder_count(), merged.waiter_count()), counted);
        }
    }
}
