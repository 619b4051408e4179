//! One call: the time, and the lock as the call finds it.

use super::lock::{BATCH, Lock};

/// A lock while one call works on it.
pub struct Transaction<'a> {
    pub(super) lock: &'a mut Lock,
    pub(super) now: u64,
    /// How many holds or waiters the call drops or admits at most.
    pub batch: usize,
    /// Whether a hold of rlock excludes others.
    pub(super) live: bool,
    /// Whether the guard was deleted under live holds.
    pub(super) deleted: bool,
    /// Whether expired holds or waiters remain, so that nothing can be decided.
    pub(super) cleanup_pending: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn begin(lock: &'a mut Lock, now: u64) -> Self {
        lock.guard.take_if(|guard| guard.until.is_some_and(|until| until < now));
        let guard = lock.guard.as_ref().map(|guard| &guard.value);
        let held = lock.holds.iter().any(|hold| hold.deadline >= now);
        let deleted = lock.written.is_some() && guard.is_none() && held;
        let own = guard.is_some() && guard == lock.written.as_ref();
        let live = (own || deleted) && !lock.holds.is_empty();
        Self { lock, now, batch: BATCH, live, deleted, cleanup_pending: false }
    }

    /// Whether another tool holds the lock.
    pub(super) fn foreign(&self) -> bool {
        self.lock.guard.is_some() && !self.live
    }

    /// Whether no hold is on record, and no other tool holds the lock.
    pub(super) fn is_free(&self) -> bool {
        self.lock.holds.is_empty() && !self.foreign()
    }

    /// The time in microseconds, for fences.
    pub(super) fn micros(&self) -> u64 {
        self.now.saturating_mul(1_000)
    }
}
