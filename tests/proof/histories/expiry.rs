//! When the keys of a lock expire.

use rlock::rules::Key;
use rlock::rules::model::lock::{DAY, Lock};

use crate::scripts::shim::Shim;

/// Longer than any lease in a history.
const LONG: u64 = 200_000;

/// What the lock was when its keys were last compared, and when some of it changed.
#[derive(Clone, Default)]
pub(super) struct Kept {
    lock: Lock,
    state_used: u64,
    queue_used: u64,
    recorded: u64,
}

impl Kept {
    /// Each key lasts for a day after the last use of what it holds, and not much longer.
    pub(super) fn check(&mut self, key: &Key, model: &Lock, now: u64) {
        let lock = model.clone();
        let before = &self.lock;
        let joins = lock.queue.iter().any(|new| {
            let mut others = before.queue.iter();
            !others.any(|old| (&old.token, old.attempt) == (&new.token, new.attempt))
        });
        let is_used = joins
            || (lock.fence, &lock.skipped, &lock.newest)
                != (before.fence, &before.skipped, &before.newest);
        let guarded = lock.guard.as_ref().and_then(|guard| guard.until).unwrap_or(now).max(now);
        if is_used {
            self.state_used = now;
        }
        if joins {
            self.queue_used = now;
        }
        if lock.history != before.history {
            self.recorded = now;
        }
        let deadline = lock.holds.iter().map(|hold| hold.deadline).max().unwrap_or(0);
        let tombstone = lock.tombstones.iter().map(|it| it.until).max().unwrap_or(0);
        let used = if is_used { guarded } else { self.state_used };
        let side_keys = [
            ("holds", deadline + DAY),
            ("state", deadline.max(used + DAY)),
            ("queue", self.queue_used + DAY),
            ("history", self.recorded + DAY),
            ("tombstones", tombstone),
        ];
        Shim::redis(|redis| {
            for (name, at_least) in side_keys {
                let at_most = if name == "history" { at_least } else { now + DAY + LONG };
                if let Some(entry) = redis.home().get(key.side(name).as_bytes()) {
                    let until = entry.until.unwrap_or(u64::MAX);
                    assert!((at_least..=at_most).contains(&until), "{name}: {until} {at_least}");
                }
            }
        });
        self.lock = lock;
    }
}
