//! A record: what belongs together, as the scripts, the keys of a server and the files of `local:` write it.

use std::time::Duration;

use crate::rules::{Mode, ServerTime};

/// The items of a record, each of which is a line break, a name, a space and a value. A reader skips
/// names that it does not know, and a missing value is empty. Of several items with the same name, the
/// first counts.
pub struct Record<'a>(&'a str);

impl<'a> Record<'a> {
    /// Reads what another client wrote, which may have another version or be hostile.
    pub fn of(text: &'a str) -> Self {
        Self(text)
    }

    fn items(&self) -> impl Iterator<Item = &'a str> {
        self.0.split('\n').skip(1)
    }

    /// What it is a record of: the name of its first item.
    pub fn kind(&self) -> &'a str {
        self.items().next().map_or("", |item| item.split(' ').next().unwrap_or(item))
    }

    pub fn get(&self, name: &str) -> &'a str {
        let value = |item: &'a str| item.strip_prefix(name)?.strip_prefix(' ');
        self.items().find_map(value).unwrap_or("")
    }

    /// A number; 0 if it was lost.
    pub(in crate::rules) fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    pub(super) fn time(&self, name: &str) -> ServerTime {
        ServerTime(self.number(name))
    }

    /// The mode of the holds, or of one hold or waiter; `None` if it was lost, or if there is none.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.get("mode").to_owned().try_into().ok()
    }

    /// How long a holder waited for its grant; `None` if the time of its first request is unknown.
    pub(super) fn waited(&self) -> Option<Duration> {
        let since = self.get("since").parse().ok().map(ServerTime);
        since.map(|since| self.time("acquired").since(since))
    }
}
