//! Revocation: of all holds up to a fence, `revoked_up_to`, or of one.

use super::lock::{Hold, Revoked, RevokedUpTo};
use super::transaction::Transaction;
use crate::rules::{Ending, HoldState, Operator};

impl Transaction<'_> {
    /// The state of a hold, with all revocations applied.
    pub(super) fn hold_state(&self, hold: &Hold) -> HoldState {
        match hold.status {
            HoldState::Held
                if hold.fence <= self.lock.revoked_up_to.fence || hold.revoked.is_some() =>
            {
                HoldState::Revoked
            }
            state => state,
        }
    }

    /// Revokes all holds with a fence up to this one. Each excludes others until its holder
    /// releases it or its lease expires.
    pub(super) fn revoke_up_to(&mut self, fence: u64, how: Ending, by: Operator) {
        if fence > self.lock.revoked_up_to.fence {
            self.lock.revoked_up_to = RevokedUpTo { fence, how: Some(how), by, at: self.now };
        }
    }

    /// How, by whom and when a hold was revoked: individually, or with all up to `revoked_up_to`.
    pub(super) fn revocation(&self, hold: &Hold) -> (Ending, Operator, u64) {
        if let Some(Revoked { at, by }) = &hold.revoked {
            return (Ending::Revoked, by.clone(), *at);
        }
        let RevokedUpTo { how, by, at, .. } = &self.lock.revoked_up_to;
        match how {
            Some(how) => (*how, by.clone(), *at),
            None => (Ending::Revoked, Operator::default(), self.now),
        }
    }
}
