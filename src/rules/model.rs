//! The lock model as a pure function of a lock's state, a request and the time. It does in Rust
//! what the scripts in `lua/` do on a server. It is the engine of `local:`, and the reference
//! against which random histories test the scripts.
//!
//! The twin of `X.rs` is `lua/X.lua`, which makes the same decisions under the same names: change
//! both together.
//!
//! All times are milliseconds since the epoch. As in the scripts, a hold includes the millisecond
//! of its deadline.

mod admission;
mod asking;
mod closing;
mod fence;
mod history;
mod holds;
pub mod lock;
mod member;
mod nomination;
mod owners;
mod queue;
mod reconcile;
mod requests;
mod revocation;
mod slots;
mod tombstones;
pub mod transaction;
mod view;

pub use lock::{Lock, Mail, Message};
use transaction::Transaction;

use crate::rules::{View, item};

impl Lock {
    /// The lock at this time, for one request.
    pub fn at(&mut self, now: u64) -> Transaction<'_> {
        Transaction::begin(self, now)
    }

    /// Shows the lock with all its holders and waiters, and how its last holds ended.
    pub fn inspect(&self, now: u64) -> View {
        // On a copy, because this drops an expired guard.
        self.clone().at(now).inspect()
    }

    /// Converts the end of each hold and waiter to another clock, by adding the milliseconds that
    /// `by` returns for its token. The start times stay as they are, because they are only for
    /// display.
    pub(crate) fn shift(&mut self, by: impl Fn(&str) -> i64) {
        for hold in &mut self.holds {
            let by = by(&hold.token);
            for time in hold.renewed.iter_mut().chain([&mut hold.deadline]) {
                *time = time.saturating_add_signed(by);
            }
            if hold.keep_until > 0 {
                hold.keep_until = hold.keep_until.saturating_add_signed(by);
            }
        }
        for waiter in &mut self.queue {
            waiter.alive = waiter.alive.saturating_add_signed(by(&waiter.token));
        }
        let latest = self.holds.iter().map(|hold| hold.deadline).max();
        if let (Some(guard), Some(latest)) = (&mut self.guard, latest) {
            guard.until = Some(latest);
        }
    }

    /// The times that `shift` moves, by token. A hold with the times of a waiter differs from it.
    pub(crate) fn times(&self) -> impl Iterator<Item = (&str, [u64; 3])> {
        let holds = self.holds.iter().map(|hold| {
            (hold.token.as_str(), [hold.deadline, hold.keep_until, hold.renewed.unwrap_or(0)])
        });
        let waiters = self.queue.iter();
        holds.chain(waiters.map(|waiter| (waiter.token.as_str(), [0, 0, waiter.alive])))
    }

    /// The latest time at which something is known to have happened.
    pub(crate) fn latest(&self) -> u64 {
        let ends = self.history.iter().filter_map(|entry| item(entry, "at").parse().ok());
        ends.filter(|&at| at < lock::TOO_FAR).fold(self.fence / 1_000, u64::max)
    }

    /// Forgets tokens that are over and no longer rejected, and all but the last few others. If
    /// requests cannot arrive late, these tokens only explain how a hold ended.
    pub(crate) fn forget_marks(&mut self, now: u64) {
        const KEPT: usize = 64;
        self.tombstones.retain(|mark| mark.until >= now);
        let surplus = self.tombstones.len().saturating_sub(KEPT);
        self.tombstones.drain(..surplus);
    }

    /// Whether all holds and all positions in the queue ended before `time`.
    pub fn is_unused_since(&self, time: u64) -> bool {
        self.holds.iter().all(|hold| hold.deadline < time)
            && self.queue.iter().all(|waiter| waiter.alive < time)
    }

    /// Whether all times, fencing tokens, tickets and TTLs are small enough that no sum of them
    /// overflows.
    pub(crate) fn is_plausible(&self) -> bool {
        let is_time = |time: u64| time < lock::TOO_FAR;
        let is_fence = |fence: u64| fence / 1_000 < lock::TOO_FAR;
        let is_ttl = |ttl: u64| ttl <= lock::LONGEST_TTL;
        is_fence(self.fence)
            && is_fence(self.revoked_up_to.fence)
            && is_fence(self.ticket)
            && self.newest.iter().all(|newest| is_fence(newest.arrival))
            && is_time(self.revoked_up_to.at)
            && self.guard.iter().filter_map(|guard| guard.until).all(is_time)
            && self.tombstones.iter().all(|mark| is_time(mark.until))
            && self.holds.iter().all(|hold| {
                let times = [hold.acquired, hold.deadline, hold.keep_until];
                times.into_iter().chain(hold.renewed).chain(hold.since).all(is_time)
                    && is_fence(hold.fence)
                    && is_ttl(hold.ttl)
            })
            && self
                .queue
                .iter()
                .all(|waiter| is_time(waiter.since) && is_time(waiter.alive) && is_ttl(waiter.ttl))
    }
}

#[cfg(test)]
mod tests {
    use super::lock::{Guard, Hold, LONGEST_TTL, Mark, Newest, QueueEntry, TOO_FAR, Tombstone};
    use super::*;
    use crate::rules::{ClientInfo, HistoryEntry, ServerTime};

    /// A lock with one of everything, all at time 50.
    fn full() -> Lock {
        let hold = Hold {
            token: "hold".into(),
            renewed: Some(50),
            deadline: 50,
            keep_until: 50,
            since: Some(50),
            ..Hold::default()
        };
        let newest = Newest { arrival: 1, token: String::new(), client: ClientInfo::default() };
        Lock {
            guard: Some(Guard { value: "hold".into(), until: Some(50) }),
            newest: Some(newest),
            queue: vec![QueueEntry { token: "waiter".into(), alive: 50, ..QueueEntry::default() }],
            holds: vec![hold],
            history: vec![HistoryEntry::default().into()],
            tombstones: vec![Tombstone { mark: Mark::Token(String::new()), until: 50 }],
            ..Lock::default()
        }
    }

    #[test]
    fn the_latest_time_is_that_of_the_last_grant_or_of_the_last_plausible_end() {
        let ended = |at| HistoryEntry { at: ServerTime(at), ..HistoryEntry::default() }.into();
        let history = vec![ended(60), ended(TOO_FAR)];
        for (fence, latest) in [(50_000, 60), (70_000, 70)] {
            let lock = Lock { fence, history: history.clone(), ..Lock::default() };
            assert!(lock.is_plausible());
            assert_eq!(lock.latest(), latest);
        }
    }

    #[test]
    fn a_lock_with_a_number_that_is_too_large_is_not_plausible() {
        let times: &[fn(&mut Lock, u64)] = &[
            |lock, time| lock.revoked_up_to.at = time,
            |lock, time| lock.guard.as_mut().unwrap().until = Some(time),
            |lock, time| lock.tombstones[0].until = time,
            |lock, time| lock.holds[0].acquired = time,
            |lock, time| lock.holds[0].deadline = time,
            |lock, time| lock.holds[0].renewed = Some(time),
            |lock, time| lock.holds[0].since = Some(time),
            |lock, time| lock.queue[0].since = time,
            |lock, time| lock.queue[0].alive = time,
        ];
        let fences: &[fn(&mut Lock, u64)] = &[
            |lock, fence| lock.fence = fence,
            |lock, fence| lock.revoked_up_to.fence = fence,
            |lock, ticket| lock.ticket = ticket,
            |lock, arrival| lock.newest.as_mut().unwrap().arrival = arrival,
            |lock, fence| lock.holds[0].fence = fence,
        ];
        let ttls: &[fn(&mut Lock, u64)] =
            &[|lock, ttl| lock.holds[0].ttl = ttl, |lock, ttl| lock.queue[0].ttl = ttl];
        for (kind, set, limit) in [
            ("time", times, TOO_FAR),
            ("fence", fences, TOO_FAR * 1_000),
            ("ttl", ttls, LONGEST_TTL + 1),
        ] {
            for (number, set) in set.iter().enumerate() {
                let mut lock = full();
                set(&mut lock, limit);
                assert!(!lock.is_plausible(), "{kind} {number}");
                set(&mut lock, limit - 1);
                assert!(lock.is_plausible(), "{kind} {number}");
            }
        }
    }

    #[test]
    fn a_lock_is_unused_once_all_holds_and_waiters_have_ended() {
        assert!(full().is_unused_since(51));
        assert!(!full().is_unused_since(50));
        assert!(!Lock { holds: Vec::new(), ..full() }.is_unused_since(50));
        assert!(!Lock { queue: Vec::new(), ..full() }.is_unused_since(50));
    }

    #[test]
    fn another_clock_moves_the_end_of_each_hold_and_waiter() {
        let mut lock = full();
        lock.holds.push(Hold { token: "other".into(), deadline: 10, ..Hold::default() });
        lock.shift(|token| if token == "other" { 90 } else { 5 });
        let Hold { renewed, deadline, keep_until, .. } = lock.holds[0];
        assert_eq!((renewed, deadline, keep_until), (Some(55), 55, 55));
        assert_eq!((lock.holds[1].deadline, lock.holds[1].keep_until), (100, 0));
        assert_eq!(lock.queue[0].alive, 55);
        assert_eq!(lock.guard.unwrap().until, Some(100));
    }

    #[test]
    fn the_last_64_marks_are_kept_until_they_end() {
        let mut lock = Lock::default();
        let mark = |until: u64| Tombstone { mark: Mark::Token(until.to_string()), until };
        lock.tombstones = (1..=100).map(mark).collect();
        lock.forget_marks(10);
        assert_eq!(lock.tombstones[0].until, 37);
        lock.forget_marks(50);
        assert_eq!(lock.tombstones[0].until, 50);
    }
}
