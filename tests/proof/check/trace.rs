//! What readers see of a state. The time is always 1,000,000 s.

use std::fmt::Debug;

use rlock::rules::model::Lock;

/// How much of a request or a reply is shown.
const BRIEF: usize = 70;

/// How a client is called.
pub(super) fn letter(client: usize) -> char {
    char::from(b'a' + client as u8)
}

/// The beginning of a request, a reply or what a client does.
pub(super) fn brief(it: &impl Debug) -> String {
    format!("{it:?}").chars().take(BRIEF).collect()
}

/// What a server has of a lock, and for how long, at this time.
pub(super) fn shown(lock: &Lock, now: u64) -> String {
    let holds = lock.holds.iter().map(|hold| {
        let (id, left) = (&hold.token[..2], hold.deadline as i64 - now as i64);
        let (status, fence, slot) = (hold.status, since(hold.fence, now), hold.slot);
        format!("{id} for {left} ms, {status:?}, fence {fence}, slot {slot:?}")
    });
    let guard = lock.guard.iter().map(|guard| format!("key {}", guard.value));
    let queue = lock.queue.iter().map(|waiter| {
        let (id, ticket) = (&waiter.token[..2], since(waiter.ticket, now));
        let nominated = lock.nominated.contains(&waiter.token);
        format!("{id} with ticket {ticket}{}", if nominated { ", nominated" } else { "" })
    });
    let (holds, queue): (Vec<_>, Vec<_>) = (holds.chain(guard).collect(), queue.collect());
    format!("held by [{}]; queue [{}]", holds.join("; "), queue.join("; "))
}

/// A fencing token or a ticket: those of a quorum count in microseconds, from the clock.
fn since(number: u64, now: u64) -> i64 {
    let clock = if number < now { 0 } else { now * 1_000 };
    number as i64 - clock as i64
}
