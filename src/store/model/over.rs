//! Tokens that are over: released, or given up. A late request with such a token is rejected.

use std::time::Duration;

use super::history::HISTORY_LENGTH;
use super::lock::Mark;
use super::transaction::Transaction;
use crate::lock::view::{Ending, HoldState, Reason};

/// How many tokens are remembered.
const MAX_MARKS: usize = 1_000;

/// How long they are remembered in milliseconds, unless the TTL is longer.
const MARK_DURATION: u64 = 60_000;

impl Transaction<'_> {
    pub(super) fn mark_over(&mut self, token: &str, ttl: u64) {
        let over = &mut self.lock.over;
        // The marks that expire first make room. Removing them first keeps the new one.
        let surplus = (over.len() + 1).saturating_sub(MAX_MARKS);
        over.drain(..surplus);
        over.retain(|mark| mark.token != token);
        over.push(Mark { token: token.to_owned(), until: self.now + ttl.max(MARK_DURATION) });
        over.sort_by(|one, other| (one.until, &one.token).cmp(&(other.until, &other.token)));
    }

    /// A cooling hold was released, even if its mark is lost.
    pub(super) fn is_over(&self, token: &str) -> bool {
        let hold = self.unexpired_hold(token);
        let cooling = hold.is_some_and(|hold| hold.standing == HoldState::Cooling);
        cooling || self.lock.over.iter().any(|mark| mark.token == token && mark.until >= self.now)
    }

    /// Why this token does not hold the lock.
    pub(super) fn why_not_held(&self, token: &str) -> Reason {
        let ago = |at: u64| Some(Duration::from_millis(self.now.saturating_sub(at)));
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        if let Some(hold) = hold.filter(|hold| hold.deadline < self.now) {
            return Reason::new(Some(Ending::Expired), ago(hold.deadline), "");
        }
        let unexpired = self.unexpired_hold(token);
        if let Some(hold) = unexpired.filter(|hold| self.hold_state(hold) == HoldState::Revoked) {
            let (how, by, at) = self.revocation();
            let how = if hold.standing == HoldState::Held { how } else { Ending::Forgotten };
            return Reason::new(Some(how), ago(at), &by);
        }
        if let Some(entry) = self.recorded(token) {
            return Reason::new(Some(entry.ending), ago(entry.at), &entry.by);
        }
        let ending = match () {
            () if self.is_over(token) => Some(Ending::Released),
            // A complete history would contain it.
            () if self.lock.history.len() >= HISTORY_LENGTH => Some(Ending::Expired),
            () => None,
        };
        Reason::new(ending, None, "")
    }
}
