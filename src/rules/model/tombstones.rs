//! Tokens that are over: released, or withdrawn. A late request with such a token is rejected.

use std::time::Duration;

use super::history::HISTORY_LENGTH;
use super::lock::{Ended, Mark, TOO_LONG, Tombstone};
use super::transaction::Transaction;
use crate::rules::{Answer, Ending, HoldState, Operator, Reason};

/// How many tokens are remembered.
const MAX_TOMBSTONES: usize = 1_000;

/// How long they are remembered in milliseconds, unless the TTL is longer.
const TOMBSTONE_DURATION: u64 = 60_000;

impl Transaction<'_> {
    pub(super) fn add_tombstone(&mut self, token: &str, ttl: u64) {
        self.mark(Mark::Token(token.to_owned()), ttl);
    }

    pub(super) fn mark(&mut self, mark: Mark, ttl: u64) {
        let tombstones = &mut self.lock.tombstones;
        // The tombstones that expire first make room. Removing them first keeps the new one.
        let surplus = (tombstones.len() + 1).saturating_sub(MAX_TOMBSTONES);
        if surplus > 0 {
            tombstones.drain(..surplus);
            // Tombstones that another client wrote, and that would never make room.
            tombstones.retain(|tombstone| tombstone.until < self.now + TOO_LONG);
        }
        tombstones.retain(|tombstone| tombstone.mark != mark);
        tombstones.push(Tombstone { mark, until: self.now + ttl.max(TOMBSTONE_DURATION) });
        tombstones.sort_unstable();
    }

    /// Marks a request that its client did not end itself, so that a later request with its token
    /// learns how. This tombstone is next to the token's own, which comes last, so that it is kept
    /// even if all others last longer.
    pub(super) fn mark_ended(&mut self, token: &str, ttl: u64, ended: Ended) {
        self.mark(Mark::Ended(token.to_owned(), ended), ttl);
        self.add_tombstone(token, ttl);
    }

    /// How and by whom this token's request was ended; `None` if nobody else ended it.
    pub(super) fn how_ended(&self, token: &str) -> Option<Answer> {
        let until = self.marked_until(&Mark::Token(token.to_owned()));
        self.lock.tombstones.iter().find_map(|Tombstone { mark, until: its }| match mark {
            Mark::Ended(of, ended) if of == token && Some(*its) == until => Some(match ended {
                Ended::Superseded(newer) => Answer::Superseded(newer.clone()),
                Ended::Removed(by) => Answer::Removed(by.clone()),
            }),
            _ => None,
        })
    }

    fn marked_until(&self, mark: &Mark) -> Option<u64> {
        let mut tombstones = self.lock.tombstones.iter();
        tombstones.find(|tombstone| tombstone.mark == *mark).map(|tombstone| tombstone.until)
    }

    pub(super) fn is_marked(&self, mark: &Mark) -> bool {
        self.marked_until(mark).is_some_and(|until| until >= self.now)
    }

    /// A cooling hold was released, even if its tombstone is lost.
    pub(super) fn has_tombstone(&self, token: &str) -> bool {
        let cooling = self.unexpired_hold(token).is_some_and(|it| it.status == HoldState::Cooling);
        cooling || self.is_marked(&Mark::Token(token.to_owned()))
    }

    /// Why this token does not hold the lock.
    pub(super) fn why_not_held(&self, token: &str) -> Reason {
        let ago = |at: u64| Some(Duration::from_millis(self.now.saturating_sub(at)));
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        if let Some(hold) = hold.filter(|hold| hold.deadline < self.now) {
            return Reason::new(Some(Ending::Expired), ago(hold.deadline), Operator::default());
        }
        let unexpired = self.unexpired_hold(token);
        if let Some(hold) = unexpired.filter(|hold| self.hold_state(hold) == HoldState::Revoked) {
            let (how, by, at) = self.revocation(hold);
            return Reason::new(Some(how), ago(at), by);
        }
        if let Some(entry) = self.recorded(token) {
            return Reason::new(Some(entry.ending), ago(entry.at.0), entry.operator.clone());
        }
        let ending = match () {
            () if self.has_tombstone(token) => Some(Ending::Released),
            // A complete history would contain it.
            () if self.lock.history.len() >= HISTORY_LENGTH => Some(Ending::Expired),
            () => None,
        };
        Reason::new(ending, None, Operator::default())
    }
}
