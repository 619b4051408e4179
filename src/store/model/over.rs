//! Tokens that are over: released, or given up. A request with one that arrives late is refused.

use std::time::Duration;

use super::Mark;
use super::moment::Moment;
use crate::lock::view::{Ending, HoldState, Reason};

/// So many are known.
const MARKS: usize = 1_000;

/// For so long, or for the TTL if that is longer.
const MARKED: u64 = 60_000;

impl Moment<'_> {
    pub(super) fn mark_over(&mut self, token: &str, ttl: u64) {
        let over = &mut self.lock.over;
        // Those that end first make room: never this one.
        let surplus = (over.len() + 1).saturating_sub(MARKS);
        over.drain(..surplus);
        over.retain(|mark| mark.token != token);
        over.push(Mark { token: token.to_owned(), until: self.now + ttl.max(MARKED) });
        over.sort_by(|one, other| (one.until, &one.token).cmp(&(other.until, &other.token)));
    }

    pub(super) fn is_over(&self, token: &str) -> bool {
        self.lock.over.iter().any(|mark| mark.token == token && mark.until >= self.now)
    }

    /// Why this token does not hold the lock.
    pub(super) fn why_not_held(&self, token: &str) -> Reason {
        let ago = |at: u64| Some(Duration::from_millis(self.now.saturating_sub(at)));
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        if let Some(hold) = hold.filter(|hold| hold.deadline < self.now) {
            return Reason::new(Some(Ending::Expired), ago(hold.deadline), "");
        }
        let revoked = self.has(token).filter(|hold| self.standing(hold) == HoldState::Revoked);
        if let Some(hold) = revoked {
            let (how, by, at) = self.revocation();
            let how = if hold.standing == HoldState::Held { how } else { Ending::Forgotten };
            return Reason::new(Some(how), ago(at), &by);
        }
        if let Some(ended) = self.recorded(token) {
            return Reason::new(Some(ended.ending), ago(ended.at), &ended.by);
        }
        let ending = match () {
            () if self.is_over(token) => Some(Ending::Released),
            // The record may have had it.
            () if self.record_is_full() => Some(Ending::Expired),
            () => None,
        };
        Reason::new(ending, None, "")
    }
}
