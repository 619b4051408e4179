//! The waiters of a lock, in order.
//!
//! In a file of `local:`, a waiter that a change does not affect stays as it is stored. Reading,
//! parsing, serializing and writing a thousand waiters would take much longer than the rest of the
//! change. On a server, a script likewise reads only the details that it needs.

mod stored;

use std::cell::OnceCell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

pub(crate) use stored::{Details, Extent, Layout};
use stored::{Gaps, Line, Stored};

use super::{Stamp, Waiter};

/// The waiters, in the order in which they are served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// What it was read from. Some waiters may have left or changed since.
    stored: Stored,
    entries: Vec<Entry>,
}

/// A waiter: as it is stored, as a value, or both.
#[derive(Clone, Debug)]
struct Entry {
    /// Its line in the stored index; `None` if the waiter is new or has changed.
    line: Option<Line>,
    /// The waiter itself, read on first use.
    waiter: OnceCell<Box<Waiter>>,
}

impl Queue {
    /// Reads an index, which begins at `start` of the text; `None` if rlock did not write it.
    pub(crate) fn read(text: String, start: usize, details: Rc<dyn Details>) -> Option<Self> {
        let stored = Stored::new(text, start, details);
        let entry = |line: Option<Line>| Some(Entry { line: Some(line?), waiter: OnceCell::new() });
        let entries = stored.lines().map(entry).collect::<Option<_>>()?;
        Some(Self { stored, entries })
    }

    /// How to store the queue where it was read from, among details of `size` bytes; `None` if that
    /// has no room for the waiters that have changed. The waiters as they were read are not
    /// overwritten.
    pub(crate) fn changes(&self, size: usize) -> serde_json::Result<Option<Layout<'_>>> {
        self.lay_out(true, || self.stored.free(size))
    }

    /// How to store the queue in a new file.
    pub(crate) fn whole(&self) -> serde_json::Result<Layout<'_>> {
        self.lay_out(false, Gaps::unlimited).map(Option::unwrap_or_default)
    }

    fn lay_out(
        &self,
        keeps: bool,
        gaps: impl Fn() -> Gaps,
    ) -> serde_json::Result<Option<Layout<'_>>> {
        // Most changes write no details.
        let mut needed = None;
        let mut layout = Layout::default();
        for run in self.entries.chunk_by(Entry::precedes) {
            if keeps && run.iter().all(|entry| entry.line.is_some()) {
                layout.keep(&self.stored, run.iter().filter_map(|entry| entry.line.as_ref()));
                continue;
            }
            for entry in run {
                let gaps = needed.get_or_insert_with(&gaps);
                if layout.write(entry.waiter(&self.stored), gaps)?.is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(layout))
    }

    /// The waiters that have left the queue or changed since they were read. Each is returned as it
    /// was then.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = Waiter> {
        let unchanged = self.entries.iter().filter_map(|entry| entry.line.as_ref());
        self.stored.lines_except(unchanged).map(|line| self.stored.waiter(&line))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Waiter> {
        Some(self.entries.get(index)?.waiter(&self.stored))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.entries.iter().map(|entry| entry.waiter(&self.stored))
    }

    /// All waiters. They count as changed from now on.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.entries.iter_mut().filter_map(|entry| entry.change(&self.stored))
    }

    /// The waiters that are new or have changed.
    pub(crate) fn changed_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        let changed = self.entries.iter_mut().filter(|entry| entry.line.is_none());
        changed.filter_map(|entry| Some(&mut **entry.waiter.get_mut()?))
    }

    /// The tokens of all waiters.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.token(&self.stored))
    }

    /// The index of the waiter with this token.
    pub(crate) fn position(&self, token: &str) -> Option<usize> {
        self.tokens().position(|other| other == token)
    }

    /// The waiter with this token; `None` if its details are lost, because its place is unknown.
    pub(crate) fn find(&self, token: &str) -> Option<&Waiter> {
        self.get(self.position(token)?).filter(|waiter| !waiter.is_lost())
    }

    /// The waiter with this token. It counts as changed from now on.
    pub(crate) fn find_mut(&mut self, token: &str) -> Option<&mut Waiter> {
        let index = self.position(token)?;
        self.entries.get_mut(index)?.change(&self.stored)
    }

    /// Inserts a waiter at its position. Returns its index.
    pub(crate) fn insert(&mut self, waiter: Waiter) -> usize {
        let precedes = |entry: &Entry| entry.waiter(&self.stored).place() < waiter.place();
        let index = self.entries.partition_point(precedes);
        self.entries.insert(index, Entry { line: None, waiter: OnceCell::from(Box::new(waiter)) });
        index
    }

    /// Removes and returns the waiter with this token; `None` if its details are lost.
    pub(crate) fn remove(&mut self, token: &str) -> Option<Waiter> {
        let index = self.position(token)?;
        let waiter = self.entries.remove(index).into_waiter(&self.stored);
        Some(waiter).filter(|waiter| !waiter.is_lost())
    }

    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Converts the `alive` of each waiter to another clock, by adding the milliseconds that `by`
    /// returns for its stamp. They do not count as changed. Lost waiters stay dead under any clock.
    pub(crate) fn shift(&mut self, mut by: impl FnMut(&mut Stamp) -> i64) {
        for entry in &mut self.entries {
            entry.waiter(&self.stored);
            if let Some(waiter) = entry.waiter.get_mut().filter(|waiter| !waiter.is_lost()) {
                waiter.alive = waiter.alive.saturating_add_signed(by(&mut waiter.stamp));
            }
        }
    }

    /// Restores the `alive` of each waiter that has not changed since `shift`. A waiter whose stamp
    /// has changed counts as changed from now on.
    pub(crate) fn shift_back(&mut self) {
        for entry in &mut self.entries {
            let Some(line) = &entry.line else { continue };
            let Some(shifted) = entry.waiter.take() else { continue };
            let mut waiter = self.stored.waiter(line);
            if waiter.stamp != shifted.stamp {
                waiter.stamp = shifted.stamp;
                entry.line = None;
            }
            entry.waiter = OnceCell::from(Box::new(waiter));
        }
    }
}

impl Entry {
    /// Whether the line of `next` follows this line in the index.
    fn precedes(&self, next: &Self) -> bool {
        let [Some(line), Some(next)] = [&self.line, &next.line] else { return false };
        line.precedes(next)
    }

    fn token<'a>(&'a self, stored: &'a Stored) -> &'a str {
        let stored = self.line.as_ref().map(|line| stored.token(line));
        let own = || self.waiter.get().map(|waiter| waiter.token.as_str());
        stored.or_else(own).unwrap_or_default()
    }

    fn waiter(&self, stored: &Stored) -> &Waiter {
        let read = || self.line.as_ref().map(|line| stored.waiter(line)).unwrap_or_default();
        self.waiter.get_or_init(|| Box::new(read()))
    }

    fn into_waiter(self, stored: &Stored) -> Waiter {
        self.waiter(stored);
        self.waiter.into_inner().map(|waiter| *waiter).unwrap_or_default()
    }

    /// The waiter, for changes. It counts as changed from now on.
    fn change(&mut self, stored: &Stored) -> Option<&mut Waiter> {
        self.waiter(stored);
        self.line = None;
        self.waiter.get_mut().map(|waiter| &mut **waiter)
    }
}

/// Equal queues have the same hash, whether or not they are stored.
impl Hash for Queue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.len());
        self.iter().for_each(|waiter| waiter.hash(state));
    }
}

#[cfg(test)]
mod tests;
