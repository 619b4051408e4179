//! A store whose diagnostics are told as they come.

use crate::report::Report;
use crate::store::Store;

/// The only way to it leads through `ask`, so that no diagnostic is forgotten.
pub(super) struct Reported<'a> {
    store: &'a mut dyn Store,
    report: &'a Report,
}

impl<'a> Reported<'a> {
    pub(super) fn new(store: &'a mut dyn Store, report: &'a Report) -> Self {
        Self { store, report }
    }

    /// Asks it something, and tells what the servers have said meanwhile.
    pub(super) fn ask<T>(&mut self, question: impl FnOnce(&mut dyn Store) -> T) -> T {
        let answer = question(self.store);
        self.report.diagnostics(self.store.diagnostics());
        answer
    }

    pub(super) fn report(&self) -> &'a Report {
        self.report
    }
}
