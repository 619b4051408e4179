//! Tokens that are over: released, or given up. A late request with such a token is rejected.

use std::time::Duration;

use super::history::HISTORY_LENGTH;
use super::lock::{LONGEST, Tombstone};
use super::transaction::Transaction;
use crate::rules::{Answer, ClientInfo, Ending, HoldState, Operator, Reason};

/// How many tokens are remembered.
const MAX_TOMBSTONES: usize = 1_000;

/// How long they are remembered in milliseconds, unless the TTL is longer.
const TOMBSTONE_DURATION: u64 = 60_000;

impl Transaction<'_> {
    pub fn add_tombstone(&mut self, token: &str, ttl: u64) {
        let tombstones = &mut self.lock.tombstones;
        // The marks that expire first make room. Removing them first keeps the new one.
        let surplus = (tombstones.len() + 1).saturating_sub(MAX_TOMBSTONES);
        if surplus > 0 {
            tombstones.drain(..surplus);
            // Marks that another client wrote, and that would never make room.
            tombstones.retain(|tombstone| tombstone.until < self.now + LONGEST);
        }
        tombstones.retain(|tombstone| tombstone.token != token);
        tombstones.push(Tombstone {
            token: token.to_owned(),
            until: self.now + ttl.max(TOMBSTONE_DURATION),
        });
        tombstones.sort_unstable_by(|one, other| {
            (one.until, &one.token).cmp(&(other.until, &other.token))
        });
    }

    /// Marks a request that its client did not end itself, so that a later request with its token
    /// learns how, "superseded" or "removed", and by whom. This tombstone is next to the token's own,
    /// which comes last, so that it is kept even if all others last longer.
    pub fn mark_ended(&mut self, token: &str, ttl: u64, how: &str, by: &str) {
        self.add_tombstone(&format!("{token}\n{how}\n{by}"), ttl);
        self.add_tombstone(token, ttl);
    }

    /// How and by whom this token's request was ended; `None` if nobody else ended it.
    pub fn how_ended(&self, token: &str) -> Option<Answer> {
        let own = self.lock.tombstones.iter().find(|tombstone| tombstone.token == token)?;
        let beside = self.lock.tombstones.iter().filter(|tombstone| tombstone.until == own.until);
        beside
            .filter_map(|tombstone| tombstone.token.strip_prefix(token)?.strip_prefix('\n'))
            .find_map(|end| match end.split_once('\n')? {
                ("superseded", about) => Some(Answer::Superseded(ClientInfo::from_lines(about))),
                ("removed", by) => Some(Answer::Removed(Operator::from_line(by))),
                _ => None,
            })
    }

    /// A cooling hold was released, even if its tombstone is lost.
    pub fn has_tombstone(&self, token: &str) -> bool {
        let hold = self.unexpired_hold(token);
        let cooling = hold.is_some_and(|hold| hold.status == HoldState::Cooling);
        let tombstone = self.lock.tombstones.iter().find(|tombstone| tombstone.token == token);
        cooling || tombstone.is_some_and(|tombstone| tombstone.until >= self.now)
    }

    /// Why this token does not hold the lock.
    pub fn why_not_held(&self, token: &str) -> Reason {
        let ago = |at: u64| Some(Duration::from_millis(self.now.saturating_sub(at)));
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        if let Some(hold) = hold.filter(|hold| hold.deadline < self.now) {
            return Reason::new(Some(Ending::Expired), ago(hold.deadline), Operator::default());
        }
        let unexpired = self.unexpired_hold(token);
        if let Some(hold) = unexpired.filter(|hold| self.hold_state(hold) == HoldState::Revoked) {
            let (how, by, at) = self.revocation(hold);
            return Reason::new(Some(how), ago(at), Operator::from_line(&by));
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
