//! One form for all locks that behave the same from now on, so that the checker finds few states:
//! times count from now, and what is only shown or recorded is blank.

use rlock::rules::model::lock::{Guard, Lock, Origin};
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

/// Calls `change` with each fence.
pub(super) fn each_fence(lock: &mut Lock, change: &mut dyn FnMut(&mut u64)) {
    change(&mut lock.fence);
    change(&mut lock.revoked_up_to.fence);
    lock.holds.iter_mut().for_each(|hold| change(&mut hold.fence));
}

/// Calls `change` with each ticket.
pub(super) fn each_ticket(lock: &mut Lock, change: &mut dyn FnMut(&mut u64)) {
    change(&mut lock.ticket);
    let newest = lock.newest.as_mut().filter(|newest| newest.ticket > 0);
    newest.into_iter().for_each(|newest| change(&mut newest.ticket));
    lock.queue.iter_mut().for_each(|waiter| change(&mut waiter.ticket));
}

/// Calls `change` with each token and the attempt of its last request.
pub(super) fn each_attempt(lock: &mut Lock, change: &mut dyn FnMut(&str, &mut u64)) {
    lock.holds.iter_mut().for_each(|hold| change(&hold.token, &mut hold.attempt));
    lock.queue.iter_mut().for_each(|waiter| change(&waiter.token, &mut waiter.attempt));
}

/// Another tool writes the key.
pub(super) fn overwrite(lock: &mut Lock, until: Option<u64>) {
    lock.guard = Some(Guard { value: "theirs".into(), until });
}
