//! Owners: what lets a request enter a lock that its owner already holds.

use super::lock::{Hold, QueueEntry};
use super::transaction::Transaction;
use crate::rules::{HoldState, Mode, Owner, Token};

impl Transaction<'_> {
    /// The mode in which a request may enter the lock through a hold, or else `entry_mode`. A slot
    /// cannot be entered again.
    fn better_mode(&self, hold: &Hold, entry_mode: Option<Mode>) -> Option<Mode> {
        let is_held = self.hold_state(hold) == HoldState::Held;
        match (hold.mode, entry_mode) {
            (Mode::Exclusive, _) if is_held => Some(Mode::Exclusive),
            (Mode::Shared, None) if is_held => Some(Mode::Shared),
            _ => entry_mode,
        }
    }

    /// The mode in which an owner that a user chose holds the lock. The scripts do not search many
    /// holds.
    pub(super) fn owner_mode(&self, owner: &Owner) -> Option<Mode> {
        let holds =
            self.lock.holds.iter().filter(|hold| self.live && hold.owner.as_ref() == Some(owner));
        holds.fold(None, |entry_mode, hold| self.better_mode(hold, entry_mode))
    }

    /// The innermost unexpired hold among `tokens`, of which the innermost is last, and the mode in
    /// which a request may enter the lock through them.
    pub(super) fn enclosing_hold(&self, tokens: &[Token]) -> (Option<&Hold>, Option<Mode>) {
        let holds = tokens.iter().filter_map(|token| self.unexpired_hold(token.as_str()));
        holds.fold((None, None), |(_, entry_mode), hold| {
            (Some(hold), self.better_mode(hold, entry_mode))
        })
    }

    /// Whether a waiter may enter a lock that its owner holds by now.
    pub(super) fn may_enter(&self, waiter: &QueueEntry) -> bool {
        let owner = waiter.owner.as_ref().filter(|owner| waiter.reentrant && owner.is_chosen());
        match owner.and_then(|owner| self.owner_mode(owner)) {
            Some(Mode::Exclusive) => true,
            Some(Mode::Shared) => waiter.mode == Mode::Shared,
            _ => false,
        }
    }
}
