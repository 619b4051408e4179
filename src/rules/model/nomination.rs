//! Nomination: which waiters of several servers may have the lock now.

use super::lock::{CLAIM_WINDOW, Message};
use super::transaction::Transaction;
use crate::rules::{Fence, Nomination};

impl Transaction<'_> {
    /// On one of several servers, a waiter is not granted the lock but nominated: it may now
    /// commit, that is, ask this server for a hold. It does so once enough servers have nominated
    /// it. A nomination is only a hint. It passes to an older waiter that arrives later, and lapses
    /// unless the waiter asks again in time.
    pub(super) fn is_nominated(&self, token: &str) -> bool {
        self.lock.nominated.iter().any(|nominated| nominated == token)
    }

    /// What a nominated waiter needs to commit.
    pub(super) fn nomination(&self, position: u64) -> Nomination {
        let (fence, taken) = (Fence(self.next_fence(None)), self.taken_slots());
        Nomination { fence, position, taken }
    }

    pub(super) fn nominate(&mut self, token: &str, position: u64, caller: &str) {
        if token != caller && self.is_nominated(token) {
            return;
        }
        let until = self.now + CLAIM_WINDOW;
        if let Some(waiter) = self.lock.queue.iter_mut().find(|waiter| waiter.token == token) {
            // The waiter must ask again within the claim window.
            waiter.alive = waiter.alive.min(until);
        }
        if token != caller {
            self.wake(token, Message::Nominated(self.nomination(position)));
        }
    }
}
