//! The queue: positions, wake-ups, and how long a waiter sleeps.

use super::lock::Waiter;
use super::transaction::Transaction;
use crate::lock::Mode;
use crate::seeded::{Flaw, seeded};

/// How much later than the head the second waiter checks an expired lease, in milliseconds.
const GRACE: u64 = 500;

/// How often the head checks another tool's lock, which sends no messages, in milliseconds.
const FOREIGN_POLL: u64 = 1_000;

impl Transaction<'_> {
    pub(super) fn wake(&mut self, token: &str) {
        if !seeded(Flaw::WakesNobody) {
            self.lock.woken.push(token.to_owned());
        }
    }

    /// Only the head of the queue watches for the end of a lease. A new head learns that it is the
    /// head when it is woken, or from the reply to its own call.
    pub(super) fn notify_head(&mut self, head: &str, caller: &str) {
        if self.lock.notified.as_deref() != Some(head) {
            self.lock.notified = Some(head.to_owned());
            if head != caller && !seeded(Flaw::TellsNoHead) {
                self.wake(head);
            }
        }
    }

    /// Puts a waiter at the end of the queue, or leaves it where it is. Returns its position, from
    /// 1.
    pub(super) fn enqueue(&mut self, waiter: Waiter) -> u64 {
        let queue = &mut self.lock.queue;
        let index = match queue.iter().position(|other| other.token == waiter.token) {
            Some(index) => {
                queue[index] = Waiter { since: queue[index].since, ..waiter };
                index
            }
            None => {
                queue.push(waiter);
                queue.len() - 1
            }
        };
        index as u64 + 1
    }

    /// The end of the lease that a head with this mode waits for: the last one if it needs the lock
    /// alone, else the first one.
    fn awaited(&self, mode: Mode) -> u64 {
        let deadlines = self.lock.holds.iter().map(|hold| hold.deadline);
        let joins = [Some(mode), Some(Mode::Exclusive)].contains(&self.lock.mode);
        let awaited = match mode {
            Mode::Shared | Mode::Slots(_) if joins => deadlines.min(),
            _ => deadlines.max(),
        };
        awaited.unwrap_or(0) + 1
    }

    /// How many milliseconds a waiter sleeps unless it is woken. The head watches for the end of a
    /// lease. The second checks a little later, in case the head is dead. Any other waiter is woken
    /// when it becomes the head.
    pub(super) fn millis_to_sleep(
        &self,
        position: u64,
        mode: Mode,
        heartbeat: u64,
        head: Option<&Waiter>,
    ) -> u64 {
        let until = match position {
            1 if self.foreign() => {
                let until = self.lock.guard.as_ref().and_then(|guard| guard.until);
                (self.now + FOREIGN_POLL).min(until.map_or(u64::MAX, |until| until + 1))
            }
            1 if self.live && !seeded(Flaw::SleepsPastTheLease) => self.awaited(mode),
            2 if self.live => self.awaited(head.map_or(mode, |head| head.mode)) + GRACE,
            _ => u64::MAX,
        };
        heartbeat.min(until.saturating_sub(self.now)).max(1)
    }
}
