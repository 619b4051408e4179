//! Shows locks: one as a page, several as a table, and either as JSON.

pub mod json;
pub mod page;
pub mod problem;
pub(crate) mod selection;
pub mod style;
pub mod table;

use std::time::Duration;

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
        let problems = problem::of(&name, &view, here);
        Self { name, view, problems }
    }

    /// How long the lock has been held, by the holder that a list names. `None` if it is free, or
    /// held by another tool.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.acquired().map(|acquired| self.view.now.since(acquired))
    }

    /// When the hold began that `age` is about.
    pub(crate) fn acquired(&self) -> Option<ServerTime> {
        self.view.foremost().map(|holder| holder.acquired)
    }

    /// Whether an operator should look at it.
    pub(crate) fn needs_attention(&self) -> bool {
        !self.problems.is_empty()
    }
}
