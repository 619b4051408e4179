//! The waiters of a lock, in order.

use serde::{Deserialize, Serialize};

use super::Waiter;

/// The waiters, in the order in which they are served.
#[derive(Clone, Debug, Default, Hash, Serialize, Deserialize)]
pub(crate) struct Queue(Vec<Waiter>);

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Waiter> {
        self.0.get(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.0.iter_mut()
    }

    /// The index of the waiter with this token.
    pub(crate) fn position(&self, token: &str) -> Option<usize> {
        self.0.iter().position(|waiter| waiter.token == token)
    }

    pub(crate) fn find(&self, token: &str) -> Option<&Waiter> {
        self.0.iter().find(|waiter| waiter.token == token)
    }

    pub(crate) fn find_mut(&mut self, token: &str) -> Option<&mut Waiter> {
        self.0.iter_mut().find(|waiter| waiter.token == token)
    }

    /// Inserts a waiter at its position. Returns its index.
    pub(crate) fn insert(&mut self, waiter: Waiter) -> usize {
        let index = self.0.partition_point(|other| other.place() < waiter.place());
        self.0.insert(index, waiter);
        index
    }

    pub(crate) fn remove(&mut self, token: &str) -> Option<Waiter> {
        Some(self.0.remove(self.position(token)?))
    }

    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
