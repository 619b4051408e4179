//! One form for all locks that behave the same from now on, so that the checker finds few states:
//! times count from now, and what is only shown or recorded is blank.

use std::collections::BTreeSet;

use super::scope::{is_whole, whose};
use rlock::rules::model::lock::Lock;
use rlock::rules::{Ending, HistoryEntry, Record};

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
    lock.history.retain(|entry| matters(Record::of(entry).get("id")));
    for entry in &mut lock.history {
        let id = Record::of(entry).get("id").to_owned();
        *entry = HistoryEntry { id, ending: Ending::Expired, ..HistoryEntry::default() }.into();
    }
    lock.history.dedup();
    lock.mail.clear();
    lock.guard.take_if(|guard| guard.until.is_some_and(|until| until < now));
    for tombstone in &mut lock.tombstones {
        tombstone.until = now + TOMBSTONE_DURATION;
    }
    lock.tombstones.sort_unstable();
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
        (waiter.since, waiter.alive) = (0, waiter.alive.max(now - 1));
    }
}

/// The numbers of the attempts of a client that a server knows, followed by these. Only their order
/// matters, so they are renumbered. Returns how many there are.
pub(super) fn renumber_attempts<'a>(
    lock: &'a mut Lock,
    client: usize,
    sent: impl Iterator<Item = &'a mut u64>,
) -> u64 {
    let all: Vec<&mut u64> = attempts(lock, client).chain(sent).collect();
    let sorted: BTreeSet<u64> = all.iter().map(|attempt| **attempt).collect();
    for attempt in all {
        *attempt = sorted.range(..=*attempt).count() as u64;
    }
    sorted.len() as u64
}

/// The numbers of the attempts of a client that a server knows.
pub(super) fn attempts(lock: &mut Lock, client: usize) -> impl Iterator<Item = &mut u64> {
    let holds = lock.holds.iter_mut().map(|hold| (&hold.token, &mut hold.attempt));
    let waiters = lock.queue.iter_mut().map(|waiter| (&waiter.token, &mut waiter.attempt));
    let is_its_own = move |token: &str| is_whole(token) && whose(token) == client;
    let known = holds.chain(waiters).filter(move |(token, _)| is_its_own(token));
    known.map(|(_, attempt)| attempt)
}
