//! A lock at a moment, and the measures that go for all that is done to it.

use super::Lock;

/// How long a lock granted to a waiter waits to be claimed.
pub(super) const CLAIM: u64 = 2_000;

pub(super) const DAY: u64 = 24 * 3_600 * 1_000;

/// How many holds or waiters one call drops or admits at most. A few in tests, so that there is more
/// to be done.
pub(super) const BATCH: usize = if cfg!(test) { 3 } else { 100 };

/// How many holders and waiters one reply lists at most.
pub(super) const LISTED: usize = 100;

/// How many holders a reply to a waiter lists.
pub(super) const FIRST: usize = 3;

/// Of the past, so many holds are kept.
pub(super) const LAST: usize = 16;

/// A lock at a moment, while something is done to it.
pub(super) struct Moment<'a> {
    pub(super) lock: &'a mut Lock,
    pub(super) now: u64,
    /// Is there a hold of rlock's that keeps others out?
    pub(super) live: bool,
    /// Has the guard been deleted under live holds?
    pub(super) deleted: bool,
    /// Is anything left to be dropped, so that nothing can be decided yet?
    pub(super) leftovers: bool,
}

impl<'a> Moment<'a> {
    pub(super) fn of(lock: &'a mut Lock, now: u64) -> Self {
        lock.guard.take_if(|guard| guard.until.is_some_and(|until| until < now));
        let guard = lock.guard.as_ref().map(|guard| &guard.value);
        let held = lock.holds.iter().any(|hold| hold.deadline >= now);
        let deleted = lock.written.is_some() && guard.is_none() && held;
        let ours = guard.is_some() && guard == lock.written.as_ref();
        let live = (ours || deleted) && !lock.holds.is_empty();
        Self { lock, now, live, deleted, leftovers: false }
    }

    pub(super) fn foreign(&self) -> bool {
        self.lock.guard.is_some() && !self.live
    }
}
