//! One form for all locks that behave the same from now on, so that the checker finds few states:
//! times count from now, and what is only shown or recorded is blank.

use super::scope::{is_whole, whose};
use rlock::rules::model::lock::{Lock, Origin};
use rlock::rules::{Ending, HistoryEntry};

/// How long before now a time is put that no longer matters, in milliseconds.
const LONG_AGO: u64 = 100_000;

/// Marks do not age: a request is late for less than the minute for which they last.
const TOMBSTONE_DURATION: u64 = 60_000;

/// Moves all times to a clock that shows this many milliseconds less.
pub(super) fn rebase(lock: &mut Lock, back: u64) {
    for hold in &mut lock.holds {
        let times = [&mut hold.acquired, &mut hold.deadline];
        for time in times.into_iter().chain(&mut hold.renewed) {
            *time -= back;
        }
        hold.keep_until = hold.keep_until.saturating_sub(back);
    }
    for waiter in lock.queue.iter_mut() {
        waiter.alive -= back;
    }
    if let Some(until) = lock.guard.as_mut().and_then(|guard| guard.until.as_mut()) {
        *until -= back;
    }
}

/// Gives all times that no longer matter the same values, and blanks what is only shown. Of the
/// history remains which of the tokens that still matter had a hold.
pub(super) fn make_canonical(lock: &mut Lock, now: u64, matters: impl Fn(&str) -> bool) {
    lock.history.retain(|entry| matters(&entry.id));
    lock.history.sort_by(|one, other| one.id.cmp(&other.id));
    lock.history.dedup_by(|one, other| one.id == other.id);
    for entry in &mut lock.history {
        let id = std::mem::take(&mut entry.id);
        *entry = HistoryEntry { id, ending: Ending::Expired, ..HistoryEntry::default() };
    }
    lock.mail.clear();
    lock.skipped = None;
    lock.revoked_up_to.at = 0;
    lock.guard.take_if(|guard| guard.until.is_some_and(|until| until < now));
    for mark in &mut lock.tombstones {
        mark.until = now + TOMBSTONE_DURATION;
    }
    lock.tombstones.sort_by(|one, other| one.token.cmp(&other.token));
    for hold in &mut lock.holds {
        hold.since = None;
        if hold.keep_until <= now {
            hold.keep_until = 0;
        }
        if hold.deadline < now {
            (hold.deadline, hold.renewed, hold.acquired) = (now - 1, Some(now - 1), now - 1);
        } else if hold.renewed.is_some() && hold.keep_until == 0 {
            hold.acquired = now - LONG_AGO;
        }
    }
    for waiter in lock.queue.iter_mut() {
        waiter.since = 0;
        waiter.alive = waiter.alive.max(now - 1);
    }
    if lock.queue.iter().all(|waiter| waiter.origin == Origin::Counted) {
        lock.ticket = 0;
        for waiter in lock.queue.iter_mut() {
            lock.ticket += 1;
            waiter.ticket = lock.ticket;
        }
    }
}

/// What a number counts. Only the order of those of one kind matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Number {
    Fence,
    Ticket,
    /// The ticket of a request that supersedes.
    Arrival,
    /// The attempt of a client, in a round.
    Attempt(usize, u8),
}

/// Calls `change` with each number of a lock.
pub(super) fn each_number(lock: &mut Lock, change: &mut dyn FnMut(Number, &mut u64)) {
    change(Number::Fence, &mut lock.fence);
    change(Number::Fence, &mut lock.revoked_up_to.fence);
    change(Number::Ticket, &mut lock.ticket);
    lock.newest.iter_mut().for_each(|newest| change(Number::Arrival, &mut newest.ticket));
    let attempt = |token: &str, attempt: &mut u64, change: &mut dyn FnMut(_, &mut u64)| {
        if is_whole(token) {
            let (client, round) = whose(token);
            change(Number::Attempt(client, round), attempt);
        }
    };
    for hold in &mut lock.holds {
        change(Number::Fence, &mut hold.fence);
        attempt(&hold.token, &mut hold.attempt, change);
    }
    for waiter in lock.queue.iter_mut() {
        change(Number::Ticket, &mut waiter.ticket);
        attempt(&waiter.token, &mut waiter.attempt, change);
    }
}
