//! Slots: the number that each holder of a lock with slots has, from 1 to N.

use super::transaction::Transaction;
use crate::rules::{Mode, Slot};

impl Transaction<'_> {
    /// The numbers that holds on record have.
    pub(super) fn taken_slots(&self) -> Vec<Slot> {
        let mut taken: Vec<Slot> = self.lock.holds.iter().filter_map(|hold| hold.slot).collect();
        taken.sort_unstable();
        taken
    }

    /// Whether one of these holds has the wanted number, if a number is wanted.
    pub(super) fn is_taken(&self, wanted: Option<Slot>) -> bool {
        wanted.is_some_and(|slot| self.taken_slots().contains(&slot))
    }

    /// The wanted number, or else the lowest free one; `None` in another mode.
    pub(super) fn next_slot(&self, wanted: Option<Slot>) -> Option<Slot> {
        self.lock.mode.and_then(Mode::slots)?;
        let mut taken = self.taken_slots().into_iter();
        let mut numbers = (1..).filter_map(Slot::new);
        wanted.or_else(|| numbers.find(|&number| taken.next() != Some(number)))
    }
}
