//! The waiters of a lock, in order.
//!
//! A file of `local:` has a line for each waiter. A waiter that a change does not affect stays a
//! line. Parsing and serializing a thousand waiters would take much longer than the rest of the
//! change. On a server, a script likewise reads only the details that it needs.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::hash::{Hash, Hasher};
use std::iter::once;
use std::mem;
use std::ops::Range;

use super::{LONGEST_TTL, Stamp, TOO_FAR, Waiter};

/// How each line begins. The token follows, and then a quotation mark.
const BEFORE_TOKEN: &str = "{\"token\":\"";

/// The waiters, in the order in which they are served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// The text that was read, with the lines of the waiters. Some may have left or changed since.
    text: String,
    /// Where the lines begin in the text.
    start: usize,
    entries: Vec<Entry>,
}

/// A waiter: its line, its parsed form or both.
#[derive(Clone, Debug)]
struct Entry {
    /// Its line; `None` if the waiter is new or has changed.
    line: Option<Line>,
    /// The waiter itself, parsed on first use.
    waiter: OnceCell<Box<Waiter>>,
}

/// Where in the text a waiter is.
#[derive(Clone, Debug)]
struct Line {
    token: Range<usize>,
    /// The whole line, including the line break.
    whole: Range<usize>,
}

impl Queue {
    /// Finds one waiter per line, from `start` to the end; `None` if a line has another form.
    pub(crate) fn from_lines(text: String, start: usize) -> Option<Self> {
        let (mut entries, mut at) = (Vec::new(), start);
        for line in text.get(start..)?.split_inclusive('\n') {
            let token = token_of(line.strip_suffix("}\n")?)?;
            // Tokens do not contain characters that JSON escapes.
            if token.contains('\\') {
                return None;
            }
            let (begin, end) = (at + BEFORE_TOKEN.len(), at + line.len());
            let line = Line { token: begin..begin + token.len(), whole: at..end };
            entries.push(Entry { line: Some(line), waiter: OnceCell::new() });
            at = end;
        }
        Some(Self { text, start, entries })
    }

    /// A line for each waiter, in pieces: unchanged lines that are next to each other in the text
    /// are one piece.
    pub(crate) fn pieces(&self) -> serde_json::Result<Vec<Cow<'_, [u8]>>> {
        let piece = |run: &[Entry]| match run {
            [changed] if changed.line.is_none() => {
                let mut line = serde_json::to_vec(changed.waiter(&self.text))?;
                line.push(b'\n');
                Ok(line.into())
            }
            unchanged => Ok(self.lines(unchanged).unwrap_or_default().as_bytes().into()),
        };
        self.entries.chunk_by(Entry::precedes).map(piece).collect()
    }

    /// The part of the text with the lines of these waiters.
    fn lines(&self, run: &[Entry]) -> Option<&str> {
        let [first, last] = [run.first()?, run.last()?].map(|entry| entry.line.as_ref());
        self.text.get(first?.whole.start..last?.whole.end)
    }

    /// The waiters that have left the queue or changed since their lines were read. Each is
    /// returned as it was then.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = Waiter> {
        let end = self.text.len();
        let lines =
            self.entries.iter().filter_map(|entry| Some(entry.line.as_ref()?.whole.clone()));
        let between = lines.chain(once(end..end)).scan(self.start, |last, next| {
            let start = mem::replace(last, next.end);
            self.text.get(start..next.start)
        });
        between.flat_map(|lines| lines.lines().map(parsed))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Waiter> {
        Some(self.entries.get(index)?.waiter(&self.text))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.entries.iter().map(|entry| entry.waiter(&self.text))
    }

    /// All waiters. They count as changed from now on.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.entries.iter_mut().filter_map(|entry| entry.change(&self.text))
    }

    /// The waiters that are new or have changed.
    pub(crate) fn changed_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        let changed = self.entries.iter_mut().filter(|entry| entry.line.is_none());
        changed.filter_map(|entry| Some(&mut **entry.waiter.get_mut()?))
    }

    /// The tokens of all waiters.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.token(&self.text))
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
        self.entries.get_mut(index)?.change(&self.text)
    }

    /// Inserts a waiter at its position. Returns its index.
    pub(crate) fn insert(&mut self, waiter: Waiter) -> usize {
        let precedes = |entry: &Entry| entry.waiter(&self.text).place() < waiter.place();
        let index = self.entries.partition_point(precedes);
        self.entries.insert(index, Entry { line: None, waiter: OnceCell::from(Box::new(waiter)) });
        index
    }

    pub(crate) fn remove(&mut self, token: &str) -> Option<Waiter> {
        let index = self.position(token)?;
        Some(self.entries.remove(index).into_waiter(&self.text))
    }

    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Converts the `alive` of each waiter to another clock, by adding the milliseconds that `by`
    /// returns for its stamp. The lines stay as they are.
    pub(crate) fn shift(&mut self, mut by: impl FnMut(&mut Stamp) -> i64) {
        for entry in &mut self.entries {
            entry.waiter(&self.text);
            if let Some(waiter) = entry.waiter.get_mut() {
                waiter.alive = waiter.alive.saturating_add_signed(by(&mut waiter.stamp));
            }
        }
    }

    /// Restores the `alive` of each waiter that has not changed since `shift`. The stamps stay.
    pub(crate) fn shift_back(&mut self) {
        for entry in &mut self.entries {
            if entry.line.is_some() {
                let before = parsed(entry.line(&self.text)).alive;
                if let Some(waiter) = entry.change(&self.text) {
                    waiter.alive = before;
                }
            }
        }
    }
}

fn token_of(line: &str) -> Option<&str> {
    Some(line.strip_prefix(BEFORE_TOKEN)?.split_once('"')?.0)
}

/// The waiter of a line. An invalid line counts as a dead waiter, which loses its position.
fn parsed(line: &str) -> Waiter {
    // Limits the times, so that no sum of them overflows.
    let is_plausible = |waiter: &Waiter| {
        waiter.since < TOO_FAR && waiter.alive < TOO_FAR && waiter.ttl <= LONGEST_TTL
    };
    let token = || token_of(line).unwrap_or_default().to_owned();
    let waiter = serde_json::from_str(line).ok().filter(is_plausible);
    waiter.unwrap_or_else(|| Waiter { token: token(), ..Waiter::default() })
}

impl Entry {
    /// Whether the line of `next` follows this line in the text.
    fn precedes(&self, next: &Self) -> bool {
        let [Some(line), Some(next)] = [&self.line, &next.line] else { return false };
        line.whole.end == next.whole.start
    }

    /// The line of the waiter; empty if it has none.
    fn line<'a>(&self, text: &'a str) -> &'a str {
        let whole = self.line.as_ref().and_then(|line| text.get(line.whole.clone()));
        whole.unwrap_or_default()
    }

    fn token<'a>(&'a self, text: &'a str) -> &'a str {
        let token = match &self.line {
            Some(line) => text.get(line.token.clone()),
            None => self.waiter.get().map(|waiter| waiter.token.as_str()),
        };
        token.unwrap_or_default()
    }

    fn waiter(&self, text: &str) -> &Waiter {
        self.waiter.get_or_init(|| Box::new(parsed(self.line(text))))
    }

    fn into_waiter(self, text: &str) -> Waiter {
        let line = self.line(text);
        self.waiter.into_inner().map_or_else(|| parsed(line), |waiter| *waiter)
    }

    /// The waiter, for changes. It has no line from now on.
    fn change(&mut self, text: &str) -> Option<&mut Waiter> {
        self.waiter(text);
        self.line = None;
        self.waiter.get_mut().map(|waiter| &mut **waiter)
    }
}

/// Equal queues have the same hash, whether or not they were read from lines.
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

    fn lines(queue: &Queue) -> String {
        String::from_utf8(queue.pieces().unwrap().concat()).unwrap()
    }

    fn reread(queue: &Queue) -> Queue {
        Queue::from_lines(format!("first\n{}", lines(queue)), 6).unwrap()
    }

    proptest! {
        #[test]
        fn a_queue_read_from_lines_behaves_like_the_original(
            before in prop::collection::vec(step(), 0..30),
            steps in prop::collection::vec(step(), 0..30),
        ) {
            let mut queue = Queue::default();
            before.iter().for_each(|step| apply(&mut queue, *step));
            let old: Vec<Waiter> = queue.iter().cloned().collect();
            let mut read = reread(&queue);
            for step in steps {
                apply(&mut queue, step);
                apply(&mut read, step);
                prop_assert_eq!(lines(&read), lines(&queue));
                prop_assert!(read.tokens().eq(queue.tokens()));
                prop_assert!(read.iter().map(Waiter::place).is_sorted());
            }
            // A waiter that left and came back was replaced too.
            let replaced: Vec<String> = read.replaced().map(|waiter| waiter.token).collect();
            for Waiter { token, alive, .. } in &old {
                let now = read.find(token);
                let must = now.is_none_or(|now| now.alive != *alive);
                prop_assert!(!must || replaced.contains(token));
            }
            prop_assert!(replaced.iter().all(|token| old.iter().any(|old| old.token == *token)));
            prop_assert_eq!(reread(&read).replaced().count(), 0);
        }
    }

    #[test]
    fn shifting_to_another_clock_leaves_the_stored_lines_unchanged() {
        let mut queue = Queue::default();
        for number in 1..=3 {
            queue.insert(Waiter { alive: 10, ..waiter(number) });
        }
        let mut read = reread(&queue);
        read.shift(|stamp| {
            stamp.seen.insert(1, 5);
            100
        });
        assert_eq!(lines(&read), lines(&queue));
        assert!(read.iter().all(|waiter| waiter.alive == 110));
        read.find_mut("token-2").unwrap().alive = 200;
        read.shift_back();
        let ends: Vec<u64> = read.iter().map(|waiter| waiter.alive).collect();
        // The third goes first, because `waiter` sets `next` for it.
        assert_eq!(ends, [10, 10, 200]);
        assert!(read.iter().all(|waiter| waiter.stamp.seen.contains_key(&1)));
    }

    #[test]
    fn an_invalid_line_is_rejected_or_read_as_a_dead_waiter() {
        let read = |line: &str| Queue::from_lines(line.to_owned(), 0);
        for line in [
            "\n",
            "x\n",
            "{\"owner\":\"me\"}\n",
            "{\"token\":\"cut\n",
            "{\"token\":\"a\\u0062\"}\n",
        ] {
            assert!(read(line).is_none(), "{line}");
        }
        assert!(read("{\"token\":\"without a line break\"}").is_none());
        for rest in ["\"owner\":7", "\"alive\":1125899906842624", "\"token\":\"other\""] {
            let mut queue = read(&format!("{{\"token\":\"own\",{rest}}}\n")).unwrap();
            assert_eq!(queue.find("own").map(|waiter| waiter.alive), Some(0), "{rest}");
            assert!(queue.remove("own").is_some() && queue.is_empty());
        }
    }
}
