//! Ends a hold, or keeps it as cooling until its minimum time is up, and admits the head of the
//! queue.

use crate::rules::model::lock::{Hold, Message, Origin};
use crate::rules::model::transaction::Transaction;
use crate::rules::model::view::id_of;
use crate::rules::{Ending, HoldState, Outcome, Release, Token};

impl Transaction<'_> {
    /// Ends a hold, or keeps it as cooling until its minimum time is up.
    pub fn release(&mut self, token: &Token, outcome: Outcome) -> Release {
        let token = token.as_str();
        self.reconcile();
        let has_run = outcome != Outcome::NotStarted;
        let keep_until = |hold: &Hold| if has_run { hold.keep_until } else { 0 };
        let keep_until = self.valid_hold(token).map(keep_until);
        let release = match keep_until {
            Some(_) => Release::Released,
            None => Release::NotHeld(self.why_not_held(token)),
        };
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        let waiter = self.waiter(token);
        let ttl = hold.map(|hold| hold.ttl).or(waiter.map(|waiter| waiter.ttl)).unwrap_or(0);
        let ended = self.unexpired_hold(token).filter(|hold| hold.status != HoldState::Cooling);
        let ending = if outcome == Outcome::Lost { Ending::Lost } else { Ending::Released };
        let entry =
            ended.and_then(|hold| self.history_entry(hold, ending, self.now, outcome, None));
        let has_ended = ended.is_some();

        let cools = keep_until.filter(|&keep_until| keep_until > self.now);
        if let Some(keep_until) = cools {
            if let Some(hold) = self.hold_mut(token) {
                (hold.status, hold.deadline) = (HoldState::Cooling, keep_until);
            }
            self.set_guard_to_latest();
        } else if has_ended {
            self.drop_hold(token);
        }
        // A waiter has no hold to release, and keeps waiting. But if the token had a hold, here or
        // on other servers, it no longer waits: a late copy of its request may have queued it
        // again.
        let waits = self.waiter(token).is_some_and(|it| it.origin == Origin::Counted);
        if !waits || self.recorded(token).is_some() {
            self.dequeue(token);
            // If the lock was forgotten, this keeps a waiter that saw the hold from closing it.
            if !has_ended {
                self.add_tombstone(&id_of(token), ttl);
            }
            self.add_tombstone(token, ttl);
        }
        self.reopen(&id_of(token));
        let head = self.admit(token).0;
        // The head may now wait for an earlier deadline.
        if let Some(head) = head.filter(|_| cools.is_some()) {
            self.wake(&head.token, Message::Look);
        }
        self.record(entry);
        release
    }
}
