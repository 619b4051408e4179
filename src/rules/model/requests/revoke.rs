//! Revokes all holds with a fence up to the one that the caller has seen.

use crate::rules::model::history::HISTORY_LENGTH;
use crate::rules::model::lock::{Hold, MAX_LISTED};
use crate::rules::model::transaction::Transaction;
use crate::rules::{Ending, Fence, HoldState, Operator, Outcome, Revocation, View};

impl Transaction<'_> {
    /// Revokes the holds with a fence up to this one. Returns the lock as it was before, with only
    /// these holders.
    pub fn revoke(&mut self, up_to: Fence, revocation: Revocation, by: &Operator) -> View {
        let mut first = None;
        let mut from = 0;
        loop {
            let (before, again) = self.revoke_batch(up_to.0, revocation, by, from);
            let before = first.get_or_insert(before);
            match again {
                Some(next) => from = next,
                None => return before.clone().up_to(up_to),
            }
        }
    }

    /// Does the work of one call of the script. Returns the hold to continue from, unless it is
    /// finished.
    fn revoke_batch(
        &mut self,
        up_to: u64,
        revocation: Revocation,
        by: &Operator,
        from: usize,
    ) -> (View, Option<usize>) {
        self.cleanup_pending = false;
        self.reconcile();
        let before = self.view(0, MAX_LISTED);
        if self.cleanup_pending {
            return (before, Some(0));
        }
        if self.foreign() && revocation == Revocation::Graceful {
            return (before, None);
        }
        // The other tool's key has voided every hold.
        let up_to = if self.foreign() { u64::MAX } else { up_to };
        if self.live {
            self.revoke_up_to(up_to.min(self.lock.fence), Ending::Revoked, by.clone());
        }

        self.lock.holds.sort_unstable_by(Hold::by_deadline);
        let batch: Vec<_> =
            self.lock.holds.iter().skip(from).take(self.batch / 2).cloned().collect();
        let (mut next_hold, mut entries) = (from, Vec::new());
        for (index, hold) in batch.iter().enumerate() {
            let cooling = hold.status == HoldState::Cooling;
            let meant = hold.fence <= up_to;
            if revocation == Revocation::Now && meant {
                let (ending, unknown) = (Ending::Revoked, Outcome::Unknown);
                if !cooling && index + HISTORY_LENGTH >= batch.len() {
                    entries.extend(self.history_entry(hold, ending, self.now, unknown, Some(by)));
                }
                // A waiter that did not claim its grant yet keeps waiting with its token.
                if hold.renewed.is_some() {
                    self.add_tombstone(&hold.token, hold.ttl);
                }
                self.drop_hold(&hold.token);
            } else if cooling && meant {
                // Its holder has already released it, so it can go at once.
                self.drop_hold(&hold.token);
            } else {
                next_hold += 1;
            }
        }
        self.record(entries);
        if self.lock.holds.len() > next_hold {
            return (before, Some(next_hold));
        }

        if self.foreign() {
            (self.lock.guard, self.lock.written, self.lock.mode) = (None, None, None);
        }
        self.admit("");
        (before, None)
    }
}
