//! A queue in the file of a `local:` lock: an index with a line for each waiter, and the details of
//! each waiter in an extent of their own.
//!
//! A change that affects one waiter among a thousand reads and writes the whole index, but only the
//! details of that waiter.

use std::borrow::Cow;
use std::fmt::Debug;
use std::iter::{self, once};
use std::mem;
use std::ops::Range;
use std::rc::Rc;

use super::super::{LONGEST_TTL, TOO_FAR, Waiter};

/// A line of the index begins with the start of an extent and its length, each with this number of
/// hexadecimal digits. The token follows, and then a line break.
const DIGITS: usize = 8;

/// The start of each extent is a multiple of this, in bytes, so that details of about the same
/// length fit into each other's extents.
const GRAIN: usize = 64;

/// Where the details of a waiter are: a range of bytes among all details.
pub(crate) type Extent = Range<usize>;

/// The details of waiters that were stored.
pub(crate) trait Details: Debug {
    /// The end of the last possible extent.
    fn size(&self) -> usize;

    /// Returns `None` if an extent cannot be read.
    fn read(&self, extent: &Extent) -> Option<Vec<u8>>;
}

/// What a queue was read from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    text: String,
    /// Where the index begins in the text. It reaches to the end.
    start: usize,
    /// `None` if nothing was stored.
    details: Option<Rc<dyn Details>>,
}

/// A line of the index. A file is shorter than 4 GiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Where it begins in the text.
    begin: u32,
    /// Where it ends, after the line break.
    end: u32,
    /// Where the extent begins.
    start: u32,
    /// The length of the extent.
    length: u32,
}

impl Stored {
    pub(crate) fn new(text: String, start: usize, details: Rc<dyn Details>) -> Self {
        Self { text, start, details: Some(details) }
    }

    /// The lines of the index; `None` in place of the first that rlock did not write.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Option<Line>> {
        self.lines_in(self.start..self.text.len())
    }

    /// The lines that the others leave out, which must be in order.
    pub(crate) fn lines_except<'a>(
        &'a self,
        others: impl Iterator<Item = &'a Line>,
    ) -> impl Iterator<Item = Line> {
        let end = self.text.len();
        let others = others.map(Line::whole).chain(once(end..end));
        let mut last = self.start;
        let between = others.map(move |next| mem::replace(&mut last, next.end)..next.start);
        between.filter(|part| !part.is_empty()).flat_map(|part| self.lines_in(part)).flatten()
    }

    fn lines_in(&self, part: Range<usize>) -> impl Iterator<Item = Option<Line>> {
        let size = self.details.as_ref().map_or(0, |details| details.size());
        let text = self.text.get(..part.end).unwrap_or_default();
        let mut at = part.start;
        iter::from_fn(move || {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let line = Line::parse(rest, at).filter(|line| line.extent().end <= size);
            at = line.map_or(text.len(), |line| line.whole().end);
            Some(line)
        })
    }

    pub(crate) fn token(&self, line: &Line) -> &str {
        let Range { start, end } = line.whole();
        self.text.get(start + 2 * DIGITS..end - 1).unwrap_or_default()
    }

    /// Reads the details of a waiter. If they are invalid, it counts as a dead waiter, which loses
    /// its position.
    pub(crate) fn waiter(&self, line: &Line) -> Waiter {
        let token = self.token(line);
        // Limits the times, so that no sum of them overflows. After a power failure, an extent may
        // have the older details of another waiter.
        let is_valid = |waiter: &Waiter| {
            waiter.token == token
                && waiter.since < TOO_FAR
                && (1..TOO_FAR).contains(&waiter.alive)
                && waiter.ttl <= LONGEST_TTL
        };
        let details = self.details.as_ref().and_then(|details| details.read(&line.extent()));
        let waiter = details.and_then(|details| serde_json::from_slice(&details).ok());
        let dead = || Waiter { token: token.to_owned(), ..Waiter::default() };
        waiter.filter(is_valid).unwrap_or_else(dead)
    }

    /// Where this index has no extents, up to `size`.
    pub(crate) fn free(&self, size: usize) -> Gaps {
        let mut taken: Vec<Extent> = self.lines().flatten().map(|line| line.extent()).collect();
        taken.sort_unstable_by_key(|extent| extent.start);
        let mut at = 0;
        let gaps = taken.into_iter().chain(once(size..size)).map(|taken| {
            let next = at.max(taken.end.next_multiple_of(GRAIN));
            mem::replace(&mut at, next)..taken.start
        });
        Gaps(gaps.collect())
    }
}

impl Line {
    /// Parses the line with which the index continues at this offset of the text.
    fn parse(index: &str, at: usize) -> Option<Self> {
        let (start, rest) = number(index)?;
        let (length, rest) = number(rest)?;
        let token = rest.find('\n').filter(|&token| token > 0)?;
        start.checked_add(length)?;
        let begin = u32::try_from(at).ok()?;
        let end = begin.checked_add(u32::try_from(2 * DIGITS + token + 1).ok()?)?;
        Some(Self { begin, end, start, length })
    }

    fn text(extent: &Extent, token: &str) -> String {
        format!("{:0DIGITS$x}{:0DIGITS$x}{token}\n", extent.start, extent.len())
    }

    fn whole(&self) -> Range<usize> {
        self.begin as usize..self.end as usize
    }

    fn extent(&self) -> Extent {
        self.start as usize..self.start as usize + self.length as usize
    }

    /// Whether the line `next` follows this one in the index.
    pub(crate) fn precedes(&self, next: &Self) -> bool {
        self.end == next.begin
    }
}

/// Parses a number of `DIGITS` digits. Returns it and the rest.
fn number(text: &str) -> Option<(u32, &str)> {
    let digits = text.as_bytes().first_chunk::<DIGITS>()?;
    let add = |number, &digit: &u8| Some(number << 4 | char::from(digit).to_digit(16)?);
    Some((digits.iter().try_fold(0, add)?, text.get(DIGITS..)?))
}

/// Where there is room for details.
pub(crate) struct Gaps(Vec<Extent>);

impl Gaps {
    /// All of a new file, whose size is not yet known.
    pub(crate) fn unlimited() -> Self {
        Self(once(0..usize::MAX).collect())
    }

    /// Takes an extent of this length; `None` if there is none. The smallest gap that is large
    /// enough is best, because larger ones remain for longer details.
    fn take(&mut self, length: usize) -> Option<Extent> {
        let gaps = self.0.iter_mut().filter(|gap| gap.len() >= length);
        let gap = gaps.min_by_key(|gap| gap.len())?;
        let extent = gap.start..gap.start + length;
        gap.start = extent.end.next_multiple_of(GRAIN);
        Some(extent)
    }
}

/// What to write so that a queue is stored.
#[derive(Debug, Default)]
pub(crate) struct Layout<'a> {
    /// The index, in pieces.
    pub(crate) index: Vec<Cow<'a, [u8]>>,
    /// The details to write.
    pub(crate) details: Vec<(Extent, Vec<u8>)>,
    /// How many bytes the details of all waiters need.
    used: usize,
    /// The length of the longest details.
    longest: usize,
}

impl<'a> Layout<'a> {
    /// Adds waiters whose details stay where they are. Their lines follow each other.
    pub(crate) fn keep<'b>(&mut self, stored: &'a Stored, lines: impl Iterator<Item = &'b Line>) {
        let mut whole: Option<Range<usize>> = None;
        for line in lines {
            let Range { start, end } = line.whole();
            whole = Some(whole.map_or(start, |whole| whole.start)..end);
            self.count(line.length as usize);
        }
        let part = whole.and_then(|whole| stored.text.as_bytes().get(whole));
        self.index.extend(part.map(Cow::from));
    }

    /// Adds a waiter whose details are written to the next gap; `None` if there is none.
    pub(crate) fn write(
        &mut self,
        waiter: &Waiter,
        gaps: &mut Gaps,
    ) -> serde_json::Result<Option<()>> {
        let details = serde_json::to_vec(waiter)?;
        let Some(extent) = gaps.take(details.len()) else { return Ok(None) };
        self.count(extent.len());
        self.index.push(Line::text(&extent, &waiter.token).into_bytes().into());
        self.details.push((extent, details));
        Ok(Some(()))
    }

    fn count(&mut self, length: usize) {
        self.used += length.next_multiple_of(GRAIN);
        self.longest = self.longest.max(length);
    }

    /// How many bytes a new file needs for details. Half of it is free: with less, details of
    /// different lengths soon leave only gaps that are too small for a heartbeat of a waiter.
    pub(crate) fn room(&self) -> usize {
        2 * (self.used + self.longest)
    }
}
