//! Shows locks: one as a page, several as a table, and either as JSON.

mod grid;
pub mod json;
pub mod page;
pub mod problem;
pub(crate) mod selection;
pub(crate) mod servers;
pub mod style;
pub mod table;

use crate::rules::{Name, ServerTime, View};
use problem::{Here, Problem};

/// A lock as `inspect` found it.
pub struct Inspected {
    pub(crate) name: Name,
    pub(crate) view: View,
    /// The worst first.
    pub(crate) problems: Vec<Problem>,
}

impl Inspected {
    pub fn new(name: Name, view: View, here: &Here<'_>) -> Self {
        let problems = problem::of(&name, &view, here, None);
        Self { name, view, problems }
    }

    /// Looks at the lock as it is now.
    pub(crate) fn refresh(&mut self, view: View, here: &Here<'_>) {
        self.problems = problem::of(&self.name, &view, here, Some(&self.view));
        self.view = view;
    }

    /// When the hold began that a list names.
    pub(crate) fn acquired(&self) -> Option<ServerTime> {
        self.view.foremost().map(|holder| holder.acquired)
    }

    /// Whether an operator should look at it.
    pub(crate) fn needs_attention(&self) -> bool {
        !self.problems.is_empty()
    }
}
