//! The format of a state file, which a change overwrites in place.
//!
//! The file has three parts of the same size: two for copies of the state, and one for the details
//! of waiters, to which the copies refer. A change overwrites the older copy, and only details to
//! which the newer copy does not refer. So a process that is killed during the change leaves the
//! newer copy and its details. A header with a sequence number and a checksum precedes each copy:
//! only a copy that is whole counts, and of two, the one with the larger number is newer.
//!
//! After a power failure, some pages of a file may be on disk without others. Each copy therefore
//! begins on a new page, and the checksum detects a copy whose pages are from different changes.
//! Details have no checksum, because no waiter survives a power failure.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, IoSlice};
use std::iter::once;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::io::{pwritev, retry_on_intr};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::rules::model::lock::Extent;

/// How each copy begins. The number changes with the format.
const MARK: &[u8] = b"rlock lock 5 ";

/// The length of a header: the mark, and then the sequence number, the length of the content and
/// the checksum in hexadecimal, separated by spaces and ended by a line break.
const HEADER: usize = MARK.len() + 16 + 1 + 8 + 1 + 16 + 1;

/// How many bytes a system writes to disk at once.
const PAGE: usize = 4096;

/// How many parts of the same size a file has.
const PARTS: usize = 3;

/// The size of the largest file, in bytes. A larger one would take long to read, and another user of
/// a shared directory can make a file of any size.
pub(super) const LARGEST: u64 = 64 << 20;

/// A state to write.
pub(crate) struct State<'a> {
    /// The content of the copy, in pieces.
    pub(crate) copy: Vec<Cow<'a, [u8]>>,
    /// The details to write.
    pub(crate) details: Vec<(Extent, Vec<u8>)>,
    /// How many bytes a new file needs for details.
    pub(crate) room: usize,
}

impl State<'_> {
    fn length(&self) -> usize {
        self.copy.iter().map(|piece| piece.len()).sum()
    }

    /// The size of each part of a new file.
    fn size(&self) -> usize {
        (HEADER + self.length()).max(self.room).next_power_of_two().max(PAGE)
    }

    /// Fails if a new file with this state would be too large to be read again.
    pub(super) fn check_size(&self) -> io::Result<()> {
        if (PARTS * self.size()) as u64 <= LARGEST {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::StorageFull, "lock file would exceed 64 MiB"))
    }
}

/// The part of a file for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// The sequence number of the copy.
    sequence: u64,
    /// Where the copy begins.
    pub(super) offset: usize,
    /// The longest copy that fits.
    size: usize,
}

impl Room {
    /// The part of the file for details.
    pub(super) fn details(&self) -> Range<usize> {
        (PARTS - 1) * self.size..PARTS * self.size
    }

    /// Whether the copy fits.
    pub(super) fn fits(&self, state: &State<'_>) -> bool {
        HEADER + state.length() <= self.size
    }

    /// Whether the copy fits, and the state would not leave most of the file unused.
    pub(super) fn suits(&self, state: &State<'_>) -> bool {
        self.fits(state) && state.size() >= self.size / 8
    }

    /// Writes a state whose copy goes into this room of a file.
    pub(super) fn write(&self, file: &File, state: &State<'_>) -> io::Result<()> {
        for (extent, details) in &state.details {
            file.write_all_at(details, (self.details().start + extent.start) as u64)?;
        }
        let header = self.header(state);
        let parts = once(&*header).chain(state.copy.iter().map(|piece| &**piece));
        let mut parts: Vec<IoSlice<'_>> = parts.map(IoSlice::new).collect();
        let (mut rest, mut at) = (&mut parts[..], self.offset as u64);
        while !rest.is_empty() {
            let written = retry_on_intr(|| pwritev(file, rest, at))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, written);
            at += written as u64;
        }
        Ok(())
    }

    fn header(&self, state: &State<'_>) -> Vec<u8> {
        let (sequence, length) = (self.sequence, state.length());
        let mut checksum = Xxh3::with_seed(sequence);
        state.copy.iter().for_each(|piece| checksum.update(piece));
        let fields = format!("{sequence:016x} {length:08x} {:016x}\n", checksum.digest());
        [MARK, fields.as_bytes()].concat()
    }
}

/// Makes a new file with this state.
///
/// The file has all parts from the start, so that later changes need no space on the disk. If they
/// did, a power failure might leave the old part of a copy without the new part.
pub(crate) fn new_file(state: &State<'_>) -> Vec<u8> {
    let room = Room { sequence: 1, offset: 0, size: state.size() };
    let mut file = [room.header(state), state.copy.concat()].concat();
    file.resize(PARTS * room.size, 0);
    for (extent, details) in &state.details {
        let start = room.details().start + extent.start;
        file[start..start + details.len()].copy_from_slice(details);
    }
    file
}

/// Returns the content of the newest copy in a file of `length` bytes, and the room for the next
/// copy. Returns `None` if no copy is whole.
///
/// `read` takes the offset and the length of a part of the file, and returns that part. The content
/// of the older copy is read only if the newer one is not whole. The unused rest is never read.
pub(super) fn newest(
    length: usize,
    read: impl Fn(usize, usize) -> io::Result<Vec<u8>>,
) -> io::Result<Option<(Vec<u8>, Room)>> {
    // A file that has lost a part might have lost the newest copy.
    let size = length / PARTS;
    if size < PAGE || !size.is_power_of_two() || length != PARTS * size {
        return Ok(None);
    }
    let mut headers = Vec::new();
    for (offset, next) in [(0, size), (size, 0)] {
        headers.extend(Header::parse(&read(offset, HEADER)?).map(|header| (header, offset, next)));
    }
    headers.sort_by_key(|(header, ..)| Reverse(header.sequence));
    for (header, offset, next) in headers {
        if header.length > size - HEADER {
            continue;
        }
        let content = read(offset + HEADER, header.length)?;
        if xxh3_64_with_seed(&content, header.sequence) == header.checksum {
            let sequence = header.sequence.checked_add(1);
            return Ok(sequence.map(|sequence| (content, Room { sequence, offset: next, size })));
        }
    }
    Ok(None)
}

/// The fields of a header.
struct Header {
    sequence: u64,
    length: usize,
    checksum: u64,
}

impl Header {
    /// Parses the first `HEADER` bytes of a copy.
    fn parse(header: &[u8]) -> Option<Self> {
        let fields = header.strip_prefix(MARK)?.strip_suffix(b"\n")?;
        let mut fields = std::str::from_utf8(fields).ok()?.split(' ');
        let mut number = || u64::from_str_radix(fields.next()?, 16).ok();
        let (sequence, length, checksum) = (number()?, number()?, number()?);
        // A length has eight hexadecimal digits, so it is less than 4 GiB.
        Some(Self { sequence, length: u32::try_from(length).ok()? as usize, checksum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn newest(file: &[u8]) -> Option<(Vec<u8>, Room)> {
        let read = |offset: usize, length| Ok(file[offset..offset + length].to_vec());
        super::newest(file.len(), read).unwrap()
    }

    /// A state without waiters.
    fn state(content: &[u8]) -> State<'_> {
        State { copy: vec![content.into()], details: Vec::new(), room: 0 }
    }

    fn copy(content: &[u8], room: Room) -> Vec<u8> {
        [&room.header(&state(content)), content].concat()
    }

    fn file_with(content: &[u8]) -> Vec<u8> {
        new_file(&state(content))
    }

    /// The file after the first `written` bytes of a copy were written.
    fn overwritten(file: &[u8], copy: &[u8], room: Room, written: usize) -> Vec<u8> {
        let mut file = file.to_vec();
        file[room.offset..room.offset + written].copy_from_slice(&copy[..written]);
        file
    }

    /// Contents that may reach beyond a page, some of them in a larger file than they need.
    fn contents() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let content = prop::collection::vec(any::<u8>(), 0..3 * PAGE);
        prop::collection::vec(content, 2..6)
    }

    fn content_of(file: &[u8]) -> Vec<u8> {
        newest(file).unwrap().0
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn an_incomplete_write_leaves_the_old_state_and_a_complete_one_the_new(
            contents in contents(),
            parts in prop::collection::vec(any::<prop::sample::Index>(), 8),
        ) {
            let mut file = file_with(&contents[0]);
            for pair in contents.windows(2) {
                let [old, new] = [&pair[0], &pair[1]];
                prop_assert_eq!(&content_of(&file), old);
                let (_, room) = newest(&file).unwrap();
                let copy = copy(new, room);
                if !room.suits(&state(new)) {
                    file = file_with(new);
                    continue;
                }
                let pages = (0..copy.len()).step_by(PAGE).chain(0..HEADER + 1);
                let pages = pages.filter(|&written| written < copy.len());
                for written in parts.iter().map(|part| part.index(copy.len())).chain(pages) {
                    let torn = overwritten(&file, &copy, room, written);
                    prop_assert_eq!(&content_of(&torn), old, "{} bytes", written);
                    // A writer that follows puts the state in the same place.
                    prop_assert_eq!(newest(&torn).unwrap().1, room);
                }
                file = overwritten(&file, &copy, room, copy.len());
                prop_assert_eq!(&content_of(&file), new);
            }
        }

        #[test]
        fn a_state_whose_pages_are_from_different_changes_does_not_count(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 3 * PAGE), 4),
            pages in prop::collection::vec(any::<bool>(), 8),
        ) {
            let mut files = vec![file_with(&contents[0])];
            for content in &contents[1..] {
                let last = files.last().unwrap();
                let (_, room) = newest(last).unwrap();
                let copy = copy(content, room);
                files.push(overwritten(last, &copy, room, copy.len()));
            }
            // Some pages of the last change of each copy are missing on disk.
            let [before, after] = [&files[1], &files[3]];
            let mut disk = before.clone();
            for (page, _) in pages.iter().enumerate().filter(|(_, on_disk)| **on_disk) {
                let part = page * PAGE..(page + 1) * PAGE;
                disk[part.clone()].copy_from_slice(&after[part]);
            }
            if let Some((content, _)) = newest(&disk) {
                prop_assert!(contents.contains(&content));
            } else {
                let is_torn = |copy: &[bool]| copy.contains(&true) && copy.contains(&false);
                // The last page of each copy has nothing but zeros.
                prop_assert!(is_torn(&pages[..4]) && is_torn(&pages[4..]));
            }
        }

        #[test]
        fn a_file_that_has_lost_its_end_does_not_count(
            content in prop::collection::vec(any::<u8>(), 0..2 * PAGE),
            length in any::<prop::sample::Index>(),
        ) {
            let file = file_with(&content);
            prop_assert!(newest(&file[..length.index(file.len())]).is_none());
        }

        #[test]
        fn no_changed_byte_goes_unnoticed(
            content in prop::collection::vec(any::<u8>(), 0..2 * PAGE),
            at in any::<prop::sample::Index>(),
            by in 1..=u8::MAX,
        ) {
            let mut file = file_with(&content);
            let at = at.index(HEADER + content.len());
            file[at] ^= by;
            // A digit of the header may change between upper and lower case.
            prop_assert!(newest(&file).is_none_or(|it| at < HEADER && it.0 == content));
        }
    }

    #[test]
    fn a_copy_of_more_pieces_than_one_write_takes_is_written_whole() {
        let pieces: Vec<Cow<'_, [u8]>> =
            (0..3_000).map(|number| format!("{number}\n").into_bytes().into()).collect();
        let many = State { copy: pieces, details: Vec::new(), room: 0 };
        let file = tempfile::NamedTempFile::new().unwrap();
        let old = file_with(&[b'x'; 10_000]);
        std::fs::write(&file, &old).unwrap();
        let (_, room) = newest(&old).unwrap();
        assert!(room.suits(&many));
        room.write(file.as_file(), &many).unwrap();
        assert_eq!(content_of(&std::fs::read(&file).unwrap()), many.copy.concat());
    }

    #[test]
    fn details_are_written_next_to_the_copies() {
        let with = |at: usize, details: &[u8]| State {
            copy: vec![b"content"[..].into()],
            details: vec![(at..at + details.len(), details.to_vec())],
            room: 2 * PAGE,
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        let old = new_file(&with(0, b"old"));
        std::fs::write(&file, &old).unwrap();
        let (_, room) = newest(&old).unwrap();
        assert_eq!(room.details(), 4 * PAGE..6 * PAGE);
        room.write(file.as_file(), &with(64, b"new")).unwrap();
        let new = std::fs::read(&file).unwrap();
        assert_eq!(new.len(), old.len());
        let details = &new[room.details()];
        assert_eq!([&details[..3], &details[64..67]], [b"old", b"new"]);
        assert_eq!(content_of(&new), b"content");
    }

    #[test]
    fn a_file_that_is_much_too_large_for_its_state_is_replaced() {
        let room = Room { sequence: 1, offset: 0, size: 131_072 };
        let suits = |length: usize| room.suits(&state(&vec![0; length - HEADER]));
        assert_eq!(file_with(&[0; 100_000]).len(), 3 * room.size);
        assert!(suits(131_072) && suits(16_384) && suits(8_193));
        assert!(!suits(131_073) && !suits(8_192));
        let needs = |room| State { room, ..state(b"content") };
        assert!(room.suits(&needs(8_193)) && !room.suits(&needs(8_192)));
        assert_eq!(new_file(&needs(100_000)).len(), 3 * room.size);
        let smallest = Room { size: PAGE, ..room };
        assert!(smallest.suits(&state(b"")));
    }
}
