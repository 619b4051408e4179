//! Shows locks: one as a page, several as a table, and either as JSON.

mod grid;
pub mod json;
pub mod page;
pub mod problem;
pub(crate) mod selection;
pub(crate) mod servers;
pub mod style;
pub mod table;

use std::time::{Duration, UNIX_EPOCH};

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

/// A time in RFC 3339, whose last year is 9999. A later time comes from a wrong clock or from
/// another tool, and shows as the epoch.
fn rfc3339(time: ServerTime) -> String {
    const LAST: u64 = 253_402_300_799_999;
    let millis = if time.0 <= LAST { time.0 } else { 0 };
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_and_an_impossible_one_does_not_panic() {
        assert_eq!(rfc3339(ServerTime(1_795_240_597_683)), "2026-11-21T05:56:37.683Z");
        assert_eq!(rfc3339(ServerTime(u64::MAX)), "1970-01-01T00:00:00.000Z");
    }
}
