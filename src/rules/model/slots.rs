//! Slots: the number that each holder of a lock with slots has, from 1 to N.

use super::transaction::Transaction;
use crate::rules::{HoldState, Mode, Slot};

impl Transaction<'_> {
    /// The lowest number that no hold on record has; `None` in another mode. That of a reinstated
    /// hold does not count: it is shown, but another hold may have it by now.
    pub fn free_slot(&self) -> Option<Slot> {
        let most = self.lock.mode.and_then(Mode::slots)?;
        let counted = self.lock.holds.iter().filter(|hold| hold.status != HoldState::Revoked);
        let mut taken: Vec<Slot> = counted.filter_map(|hold| hold.slot).collect();
        taken.sort_unstable();
        taken.dedup();
        let mut numbers = (1..=most.get()).filter_map(Slot::new);
        let mut taken = taken.into_iter();
        numbers.find(|&number| taken.next() != Some(number))
    }
}
