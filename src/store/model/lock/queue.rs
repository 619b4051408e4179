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

    pub(crate) fn find(&self, token: &str) -> Option<&Waiter> {
        self.get(self.position(token)?)
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

    pub(crate) fn remove(&mut self, token: &str) -> Option<Waiter> {
        let index = self.position(token)?;
        Some(self.entries.remove(index).into_waiter(&self.stored))
    }

    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Converts the `alive` of each waiter to another clock, by adding the milliseconds that `by`
    /// returns for its stamp. They do not count as changed.
    pub(crate) fn shift(&mut self, mut by: impl FnMut(&mut Stamp) -> i64) {
        for entry in &mut self.entries {
            entry.waiter(&self.stored);
            if let Some(waiter) = entry.waiter.get_mut() {
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A step, with the number of the waiter that it affects.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u64),
        Remove(u64),
        Change(u64),
        Read(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let number = 0..12_u64;
        (number, 0..4).prop_map(|(number, kind)| match kind {
            0 => Step::Insert(number),
            1 => Step::Remove(number),
            2 => Step::Change(number),
            _ => Step::Read(number),
        })
    }

    fn token(number: u64) -> String {
        format!("token-{number}")
    }

    fn waiter(number: u64) -> Waiter {
        let about = "host\nuser\n".to_owned();
        let next = number.is_multiple_of(3);
        Waiter { token: token(number), about, ticket: number, next, ..Waiter::default() }
    }

    fn apply(queue: &mut Queue, step: Step) {
        match step {
            Step::Insert(number) => {
                if queue.position(&token(number)).is_none() {
                    queue.insert(waiter(number));
                }
            }
            Step::Remove(number) => {
                let removed = queue.remove(&token(number));
                assert!(removed.is_none_or(|waiter| waiter.token == token(number)));
            }
            Step::Change(number) => {
                if let Some(waiter) = queue.find_mut(&token(number)) {
                    waiter.alive += 1;
                }
            }
            Step::Read(number) => {
                let read = queue.find(&token(number));
                assert!(read.is_none_or(|waiter| waiter.ticket == number));
            }
        }
    }

    /// A queue as a file stores it.
    #[derive(Clone, Debug, PartialEq)]
    struct Kept {
        index: String,
        details: Vec<u8>,
    }

    impl Details for Vec<u8> {
        fn size(&self) -> usize {
            self.len()
        }

        fn read(&self, extent: &Extent) -> Option<Vec<u8>> {
            self.get(extent.clone()).map(<[u8]>::to_vec)
        }
    }

    impl Kept {
        /// In a new file.
        fn new(queue: &Queue) -> Self {
            let layout = queue.whole().unwrap();
            let details = vec![0; layout.room()];
            Self { index: String::new(), details }.with(&layout)
        }

        /// In the file from which the queue was read; `None` if it needs a new one.
        fn changed(&self, queue: &Queue) -> Option<Self> {
            let layout = queue.changes(self.details.len()).unwrap()?;
            Some(self.clone().with(&layout))
        }

        fn with(mut self, layout: &Layout<'_>) -> Self {
            self.index = String::from_utf8(layout.index.concat()).unwrap();
            for (extent, details) in &layout.details {
                self.details[extent.clone()].copy_from_slice(details);
            }
            self
        }

        fn read(&self) -> Queue {
            let text = format!("first\n{}", self.index);
            Queue::read(text, 6, Rc::new(self.details.clone())).unwrap()
        }
    }

    impl Queue {
        /// Stores the queue and reads it again, as `local:` does between two requests.
        pub(crate) fn reread(&self) -> Self {
            Kept::new(self).read()
        }
    }

    fn waiters(queue: &Queue) -> Vec<Waiter> {
        queue.iter().cloned().collect()
    }

    /// An index with one line, whose waiter has these details.
    fn stored(token: &str, details: &str) -> Queue {
        let index = format!("{:08x}{:08x}{token}\n", 0, details.len());
        Kept { index, details: details.into() }.read()
    }

    proptest! {
        #[test]
        fn a_stored_queue_behaves_like_the_original(
            rounds in prop::collection::vec(prop::collection::vec(step(), 0..20), 1..6),
        ) {
            let mut queue = Queue::default();
            let mut kept = Kept::new(&queue);
            for steps in rounds {
                let before = waiters(&queue);
                let mut read = kept.read();
                for step in steps {
                    apply(&mut queue, step);
                    apply(&mut read, step);
                    prop_assert!(read.tokens().eq(queue.tokens()));
                    prop_assert!(read.iter().map(Waiter::place).is_sorted());
                }
                prop_assert_eq!(waiters(&read), waiters(&queue));
                // A waiter that left and came back was replaced too.
                let replaced: Vec<Waiter> = read.replaced().collect();
                prop_assert!(replaced.iter().all(|waiter| before.contains(waiter)));
                for waiter in before.iter().filter(|old| read.find(&old.token) != Some(old)) {
                    prop_assert!(replaced.contains(waiter));
                }
                let next = kept.changed(&read);
                if let Some(next) = &next {
                    // A process that is killed now leaves the old index with the new details.
                    let details = next.details.clone();
                    let torn = Kept { index: kept.index, details };
                    prop_assert_eq!(waiters(&torn.read()), before);
                }
                kept = next.unwrap_or_else(|| Kept::new(&read));
                prop_assert_eq!(waiters(&kept.read()), waiters(&queue));
                prop_assert_eq!(kept.read().replaced().count(), 0);
            }
        }
    }

    #[test]
    fn only_the_details_of_changed_waiters_are_written() {
        let mut queue = Queue::default();
        for number in 0..100 {
            queue.insert(waiter(number));
        }
        let kept = Kept::new(&queue);
        let mut read = kept.read();
        read.remove(&token(7));
        read.find_mut(&token(50)).unwrap().alive += 1;
        let layout = read.changes(kept.details.len()).unwrap().unwrap();
        assert_eq!(layout.details.len(), 1);
        assert_eq!(layout.index.len(), 4, "{:?}", layout.index);
        assert_eq!(kept.read().changes(0).unwrap().unwrap().details, []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn heartbeats_need_no_new_file(
            lengths in prop::collection::vec(0..1_000_usize, 1..12),
            heartbeats in prop::collection::vec(any::<prop::sample::Index>(), 100),
        ) {
            let mut queue = Queue::default();
            for (number, length) in (0..).zip(&lengths) {
                queue.insert(Waiter { about: "x".repeat(*length), ..waiter(number) });
            }
            let mut kept = Kept::new(&queue);
            for heartbeat in heartbeats {
                let mut read = kept.read();
                let token = token(heartbeat.index(lengths.len()) as u64);
                read.find_mut(&token).unwrap().alive += 1;
                kept = kept.changed(&read).expect("room");
            }
        }
    }

    #[test]
    fn a_queue_can_double_before_it_needs_a_new_file() {
        let mut queue = Queue::default();
        for number in 0..80 {
            queue.insert(waiter(number));
        }
        let mut kept = Kept::new(&queue);
        for number in 80..160 {
            let mut read = kept.read();
            read.insert(waiter(number));
            kept = kept.changed(&read).expect("room");
        }
    }

    #[test]
    fn shifting_to_another_clock_changes_only_waiters_that_it_sees_for_the_first_time() {
        let mut queue = Queue::default();
        for number in 1..=3 {
            queue.insert(Waiter { alive: 10, ..waiter(number) });
        }
        let kept = Kept::new(&queue);
        let mut read = kept.read();
        let see = |stamp: &mut Stamp| {
            stamp.seen.entry(1).or_insert(5);
            100
        };
        read.shift(see);
        assert!(read.iter().all(|waiter| waiter.alive == 110));
        read.find_mut("token-2").unwrap().alive = 200;
        read.shift_back();
        let alive = |queue: &Queue| queue.iter().map(|waiter| waiter.alive).collect::<Vec<_>>();
        // The third goes first, because `waiter` sets `next` for it.
        assert_eq!(alive(&read), [10, 10, 200]);
        assert!(read.iter().all(|waiter| waiter.stamp.seen.contains_key(&1)));
        let mut again = Kept::new(&read).read();
        again.shift(see);
        assert_eq!(alive(&again), [110, 110, 300]);
        again.shift_back();
        assert_eq!(alive(&again), [10, 10, 200]);
        assert_eq!(again.changed_mut().count(), 0);
    }

    #[test]
    fn an_invalid_index_is_rejected() {
        let details: Rc<dyn Details> = Rc::new(vec![0; 100]);
        let read = |index: &str| Queue::read(index.to_owned(), 0, details.clone());
        assert!(read("0000000000000064own\n").is_some());
        for index in [
            "\n",
            "x\n",
            "0000000000000064\n",
            "0000000000000064own",
            "0000000000000065own\n",
            "0000006400000001own\n",
            "ffffffff00000001own\n",
            "000000000000006gown\n",
            "+0000000+0000064own\n",
            "00000000000000é4own\n",
            "0000000000000064own\n{}\n",
        ] {
            assert!(read(index).is_none(), "{index}");
        }
    }

    #[test]
    fn invalid_details_are_read_as_a_dead_waiter() {
        let own = Waiter { token: "own".to_owned(), alive: 7, ..Waiter::default() };
        let valid = serde_json::to_string(&own).unwrap();
        assert_eq!(stored("own", &valid).find("own").map(|waiter| waiter.alive), Some(7));
        let far = valid.replace("\"alive\":7", "\"alive\":1125899906842624");
        let other = valid.replace("\"own\"", "\"other\"");
        for details in ["", "\0\0\0", &valid[..30], &far, &other] {
            let mut queue = stored("own", details);
            assert_eq!(queue.find("own").map(|waiter| waiter.alive), Some(0), "{details}");
            assert!(queue.remove("own").is_some() && queue.is_empty());
        }
    }
}
