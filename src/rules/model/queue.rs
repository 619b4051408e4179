//! The queue: positions, wake-ups, and how long a waiter sleeps.

use super::lock::{CLAIM_WINDOW, Ended, Mail, Message, QueueEntry};
use super::transaction::Transaction;
use crate::rules::Mode;

/// How much later than the head the second waiter checks an expired lease, in milliseconds.
const GRACE: u64 = 500;

/// How often the head checks another tool's lock, which sends no messages, in milliseconds.
const FOREIGN_POLL: u64 = 1_000;

impl Transaction<'_> {
    /// The index of the waiter with this token.
    pub(super) fn position(&self, token: &str) -> Option<usize> {
        self.lock.queue.iter().position(|waiter| waiter.token == token)
    }

    pub(super) fn waiter(&self, token: &str) -> Option<&QueueEntry> {
        self.lock.queue.iter().find(|waiter| waiter.token == token)
    }

    pub(super) fn dequeue(&mut self, token: &str) -> Option<QueueEntry> {
        Some(self.lock.queue.remove(self.position(token)?))
    }

    pub(super) fn wake(&mut self, token: &str, message: Message) {
        self.lock.mail.push(Mail { token: token.to_owned(), message });
    }

    /// Only the head of the queue watches for the end of a lease. A new head learns that it is the
    /// head from a message, or from the reply to its own call.
    pub(super) fn notify_head(&mut self, head: &str, caller: &str) {
        if self.lock.notified.as_deref() != Some(head) {
            self.lock.notified = Some(head.to_owned());
            if head != caller {
                self.wake(head, Message::Head);
            }
        }
    }

    /// Removes a waiter, and a grant that it did not claim. Its next request learns how and by
    /// whom.
    pub(super) fn remove_waiter(&mut self, token: &str, caller: &str, ended: Ended) {
        let removed = self.dequeue(token);
        let hold = self.unexpired_hold(token).map(|hold| hold.ttl);
        let ttl = hold.or(removed.map(|waiter| waiter.ttl)).unwrap_or(0);
        if hold.is_some() {
            self.drop_hold(token);
        }
        self.mark_ended(token, ttl, ended);
        if token != caller {
            self.wake(token, Message::Look);
        }
    }

    /// Wakes the first waiter that is alive, so that it asks for the lock.
    pub(super) fn wake_first(&mut self) {
        let alive = self.lock.queue.iter().take(self.batch).find(|it| it.is_alive(self.now));
        let first = alive.map(|waiter| waiter.token.clone());
        if let Some(first) = first {
            self.wake(&first, Message::Look);
        } else if self.lock.queue.is_empty() && self.is_free() {
            self.become_idle();
        }
    }

    /// The end of the lease that a head with this mode waits for: the last one if it needs the lock
    /// alone, else the first one. Beside an exclusive hold may be others, which it can join once the
    /// exclusive one ends, and that one may end first.
    fn awaited(&self, mode: Mode) -> u64 {
        let deadlines = self.lock.holds.iter().map(|hold| hold.deadline);
        let joins = [Some(mode), Some(Mode::Exclusive)].contains(&self.lock.mode);
        let awaited = match mode {
            Mode::Shared | Mode::Slots(_) if joins => deadlines.min(),
            _ => deadlines.max(),
        };
        awaited.unwrap_or(0) + 1
    }

    /// How many milliseconds a waiter sleeps at most, unless it is woken. The head watches for the
    /// end of a lease, or of the time that a nominated waiter has. The second checks a little later,
    /// in case the head is dead. Any other waiter is woken when it becomes the head. The position
    /// does not count the waiters that are nominated. `mode` is that of the head.
    pub(super) fn millis_to_sleep(&self, at_most: u64, position: u64, mode: Mode) -> u64 {
        let until = match position {
            1 if self.foreign() => {
                let until = self.lock.guard.as_ref().and_then(|guard| guard.until);
                (self.now + FOREIGN_POLL).min(until.map_or(u64::MAX, |until| until + 1))
            }
            1 | 2 if self.live => self.awaited(mode) + (position - 1) * GRACE,
            _ => u64::MAX,
        };
        let sleep = match position {
            1 | 2 if !self.lock.nominated.is_empty() => CLAIM_WINDOW + (position - 1) * GRACE,
            _ => u64::MAX,
        };
        at_most.min(sleep).min(until.saturating_sub(self.now)).max(1)
    }
}
