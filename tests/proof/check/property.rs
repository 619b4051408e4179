//! The promises, and those that both worlds check alike.

use super::scope::{Scope, stranger};
use rlock::rules::model::Lock;
use rlock::rules::model::lock::Hold;
use rlock::rules::{HoldState, Outcome, Slot, Token};

/// A promise. If a search ends without a broken promise, all of them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property {
    /// No two commands run that exclude each other, or more than there are slots.
    HoldersExcludeEachOther,
    /// No two commands run with one slot number, or one without.
    EachHolderHasItsSlot,
    FencesGrow,
    /// No living waiter is overtaken.
    FirstComeFirstServed,
    /// Of the requests with `--supersede`, only the newest remains.
    TheNewestWins,
    NoLockIsIdleBesideAWaiter,
    /// No hold lasts longer than its holder's last request allows.
    ADeadHoldEndsInTime,
    /// The lock is not granted before `--at-least` ends.
    AtLeastIsKept,
    /// A command ends after its hold was revoked.
    ARevokedHolderStops,
    /// No token that was released or given up is in the lock.
    WhatIsOverStaysOver,
    /// No waiter gives up, and not all that came together lose.
    SomebodyWins,
    /// A nomination does not last longer than the claim window.
    ANominationLapses,
    /// No waiter is believed alive because of another client.
    EachProvesItsOwnLife,
    /// Nothing is left when all have ended.
    NothingIsLeft,
    /// From each state, a way leads to the end.
    NothingIsStuck,
    /// The scripts do what the model does.
    TheScriptsAgree,
}

impl Property {
    /// The first one that is broken.
    pub(super) fn first<const N: usize>(broken: [(Self, bool); N]) -> Option<Self> {
        broken.into_iter().find(|(_, broken)| *broken).map(|(property, _)| property)
    }
}

/// Of these clients, whose commands run, two exclude each other, or more run than there are slots.
pub(super) fn rivals_run(scope: &Scope, running: &[usize]) -> bool {
    let slots = |client: usize| scope.clients[client].mode.slots();
    running.iter().enumerate().any(|(index, &one)| {
        let beside = running.iter().filter(|&&other| slots(other) == slots(one)).count();
        running[..index].iter().any(|&other| scope.exclude_each_other(one, other))
            || slots(one).is_some_and(|slots| beside > slots.get() as usize)
    })
}

/// Of these clients, whose commands run, two have the same number, or one has none from 1 to N.
pub(super) fn slots_are_mixed_up(
    scope: &Scope,
    running: &[usize],
    number: impl Fn(usize) -> Option<Slot>,
) -> bool {
    let most = |client: usize| {
        let slots = scope.clients[client].mode.slots();
        slots.and_then(|slots| Slot::new(slots.get()))
    };
    running.iter().enumerate().any(|(index, &one)| match most(one) {
        None => number(one).is_some(),
        most => {
            !(Slot::new(1)..=most).contains(&number(one))
                || running[..index].iter().any(|&other| number(other) == number(one))
        }
    })
}

/// A token has a place or the lock. While its hold cools, it keeps others out and nothing more.
pub(super) fn is_in_use(token: &Token, lock: &Lock, now: u64) -> bool {
    let is_live = |hold: &Hold| hold.status != HoldState::Cooling && hold.deadline >= now;
    lock.queue.iter().any(|waiter| waiter.token == token.as_str())
        || lock.holds.iter().any(|hold| hold.token == token.as_str() && is_live(hold))
}

/// All leases have expired, and yet the next call does not find the lock free.
pub(super) fn is_something_left(lock: &Lock, now: u64) -> bool {
    let mut lock = lock.clone();
    lock.at(now).release(&stranger(), Outcome::Unknown);
    !lock.holds.is_empty()
        || !lock.queue.is_empty()
        || !lock.nominated.is_empty()
        || lock.guard.is_some()
        || lock.written.is_some()
        || lock.notified.is_some()
        || lock.mode.is_some()
        || lock.ticket > 0
}
