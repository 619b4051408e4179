//! A record: what belongs together, as the scripts, the keys of a server and the files of `local:` write it.

use std::iter;
use std::time::Duration;

use crate::rules::{Mode, ServerTime};

/// The items of a record, each of which is a line break, a name, a space and a value. A reader skips
/// names that it does not know, and a missing value is empty. Of several items with the same name, the
/// first counts.
pub struct Record<'a>(Vec<RecordItem<'a>>);

/// A name, and what follows it: a space and the value.
type RecordItem<'a> = (&'a str, &'a str);

impl<'a> Record<'a> {
    /// Reads what another client wrote, which may have another version or be hostile.
    pub fn of(text: &'a str) -> Self {
        let mut all = Vec::with_capacity(16);
        // A record with more items is hostile.
        all.extend(items(text).take(64));
        Self(all)
    }

    /// What it is a record of: the name of its first item.
    pub fn kind(&self) -> &'a str {
        self.0.first().map_or("", |(name, _)| name)
    }

    pub fn get(&self, name: &str) -> &'a str {
        value(self.0.iter().copied(), name)
    }

    /// A number; 0 if it was lost, or if it is so large that some JSON readers cannot represent it
    /// exactly.
    pub(in crate::rules) fn number(&self, name: &str) -> u64 {
        self.get(name).parse().ok().filter(|&number| number < 1 << 53).unwrap_or(0)
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

/// One item of a record.
pub fn item<'a>(record: &'a str, name: &str) -> &'a str {
    value(items(record), name)
}

fn value<'a>(mut items: impl Iterator<Item = RecordItem<'a>>, name: &str) -> &'a str {
    items.find_map(|(its, rest)| rest.strip_prefix(' ').filter(|_| its == name)).unwrap_or("")
}

fn items(text: &str) -> impl Iterator<Item = RecordItem<'_>> {
    let mut rest = before(text, b'\n').1;
    iter::from_fn(move || {
        let (item, later) = before(rest.strip_prefix('\n')?, b'\n');
        rest = later;
        Some(before(item, b' '))
    })
}

/// The text up to the first of these characters, and from there on. Faster than `split` for texts as
/// short as items.
fn before(text: &str, end: u8) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| byte == end).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_items_counts_and_a_hostile_record_ends() {
        let text = format!("unread\nid 1\nid 2\nat{}\nat 3", "\nx y".repeat(61));
        let record = Record::of(&text);
        assert_eq!((record.kind(), record.get("id"), record.get("x")), ("id", "1", "y"));
        assert_eq!((record.get("at"), item(&text, "at"), item(&text, "id")), ("", "3", "1"));
    }

    #[test]
    fn a_number_that_some_json_readers_round_counts_as_lost() {
        let record = Record::of("\nat 9007199254740991\nfence 9007199254740992");
        assert_eq!((record.number("at"), record.number("fence")), ((1 << 53) - 1, 0));
    }
}
