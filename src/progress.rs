//! How far something has come that may take long, for somebody else to look at meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A count that only grows. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<AtomicUsize>);

impl Progress {
    pub(crate) fn advance(&self, by: usize) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn so_far(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
