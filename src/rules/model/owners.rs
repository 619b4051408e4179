//! Owners: what lets a request enter a lock that its owner already holds.

use super::lock::{Hold, Waiter};
use super::transaction::Transaction;
use crate::rules::{HoldState, Mode, Token};

impl Transaction<'_> {
    /// The mode in which an owner that a user chose holds the lock. A slot cannot be entered again.
    pub(crate) fn owner_mode(&self, owner: &str) -> Option<Mode> {
        let own = |hold: &Hold| {
            hold.named && hold.owner == owner && self.hold_state(hold) == HoldState::Held
        };
        let mode = self.lock.mode.filter(|mode| mode.slots().is_none());
        mode.filter(|_| self.live && self.lock.holds.iter().any(own))
    }

    /// The innermost unexpired hold among `tokens`, of which the innermost is last, and the mode in
    /// which a request may enter the lock through them.
    pub(crate) fn enclosing_hold(&self, tokens: &[Token]) -> (Option<&Hold>, Option<Mode>) {
        let (mut innermost, mut entered) = (None, None);
        for hold in tokens.iter().filter_map(|token| self.unexpired_hold(token.as_str())) {
            innermost = Some(hold);
            let valid = self.hold_state(hold) == HoldState::Held && hold.mode.slots().is_none();
            if valid && entered != Some(Mode::Exclusive) {
                entered = Some(hold.mode);
            }
        }
        (innermost, entered)
    }

    /// Whether a waiter may enter a lock that its owner holds by now.
    pub(crate) fn may_enter(&self, waiter: &Waiter) -> bool {
        let enters = waiter.reentrant && waiter.named;
        match self.owner_mode(&waiter.owner).filter(|_| enters) {
            Some(Mode::Exclusive) => true,
            Some(Mode::Shared) => waiter.mode == Mode::Shared,
            _ => false,
        }
    }
}
