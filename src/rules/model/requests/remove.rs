//! Revokes one hold, or removes one waiter.

use crate::rules::model::lock::{Ended, Revoked};
use crate::rules::model::transaction::Transaction;
use crate::rules::model::view::shown_waiter;
use crate::rules::{Ending, HoldState, Id, Operator, Outcome, Removal, Revocation, ServerTime};

impl Transaction<'_> {
    pub fn remove(&mut self, id: &Id, revocation: Revocation, by: &Operator) -> Removal {
        self.cleanup_pending = true;
        while self.cleanup_pending {
            self.cleanup_pending = false;
            self.reconcile();
        }
        let held = self.lock.holds.iter().filter(|hold| self.unexpired_hold(&hold.token).is_some());
        let waiting = self.lock.queue.iter().map(|waiter| waiter.token.as_str());
        let tokens = held.map(|hold| hold.token.as_str()).chain(waiting);
        let mut matching: Vec<String> =
            tokens.filter(|token| id.is_of(token)).map(str::to_owned).collect();
        matching.sort_unstable();
        matching.dedup();
        let [target] = matching.as_slice() else {
            let view = self.brief_view();
            let is_none = matching.is_empty();
            return if is_none { Removal::Unknown(view) } else { Removal::Several(view) };
        };

        let waiter = self.waiter(target);
        let (shown, entry) = match (self.unexpired_hold(target).cloned(), waiter) {
            (Some(hold), _) => {
                let shown = self.shown_hold(&hold);
                let mut entry = None;
                match (hold.status, revocation) {
                    _ if hold.renewed.is_none() => {
                        self.remove_waiter(target, "", Ended::Removed(by.clone()));
                    }
                    (HoldState::Cooling, _) => self.drop_hold(target),
                    (_, Revocation::Now) => {
                        let (ending, unknown) = (Ending::Revoked, Outcome::Unknown);
                        entry = self.history_entry(&hold, ending, self.now, unknown, Some(by));
                        self.add_tombstone(target, hold.ttl);
                        self.drop_hold(target);
                    }
                    _ if self.hold_state(&hold) == HoldState::Held => {
                        let revoked = Some(Revoked { at: self.now, by: by.clone() });
                        if let Some(hold) = self.hold_mut(target) {
                            hold.revoked = revoked;
                        }
                    }
                    _ => {}
                }
                (Removal::Revoked(shown, ServerTime(self.now)), entry)
            }
            (None, Some(waiter)) => {
                let shown = shown_waiter(waiter);
                self.remove_waiter(target, "", Ended::Removed(by.clone()));
                (Removal::Removed(shown, ServerTime(self.now)), None)
            }
            (None, None) => return Removal::Unknown(self.brief_view()),
        };
        self.admit("");
        self.record(entry);
        shown
    }
}
