//! The format of a state file, which a change overwrites in place.
//!
//! The file has room for two copies of the state. A change overwrites the older copy, so a process
//! that is killed during the change leaves the newer one. A header with a sequence number and a
//! checksum precedes each copy: only a copy that is whole counts, and of two, the one with the larger
//! number is newer.
//!
//! After a power failure, some pages of a file may be on disk without others. Each copy therefore
//! begins on a new page, and the checksum detects a copy whose pages are from different
//! changes.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, IoSlice};
use std::iter::once;

use rustix::io::{pwritev, retry_on_intr};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// How each copy begins. The number changes with the format.
const MARK: &[u8] = b"rlock lock 4 ";

/// The length of a header: the mark, and then the sequence number, the length of the content and
/// the checksum in hexadecimal, separated by spaces and ended by a line break.
const HEADER: usize = MARK.len() + 16 + 1 + 8 + 1 + 16 + 1;

/// How many bytes a system writes to disk at once.
const PAGE: usize = 4096;

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
    /// The room for the first copy of `length` bytes in a new file.
    fn in_new_file(length: usize) -> Self {
        Self { sequence: 1, offset: 0, size: length.next_power_of_two().max(PAGE) }
    }

    /// Whether a copy of `length` bytes fits, and would not leave most of the room unused.
    pub(super) fn suits(&self, length: usize) -> bool {
        length <= self.size && Self::in_new_file(length).size >= self.size / 8
    }

    /// Writes a copy to this room of a file.
    pub(super) fn write(&self, file: &File, content: &Pieces<'_>) -> io::Result<()> {
        let header = self.header(content);
        let parts = once(&*header).chain(content.iter().map(|piece| &**piece));
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

    fn header(&self, content: &Pieces<'_>) -> Vec<u8> {
        let (sequence, length) = (self.sequence, length_of(content));
        let mut checksum = Xxh3::with_seed(sequence);
        content.iter().for_each(|piece| checksum.update(piece));
        let fields = format!("{sequence:016x} {length:08x} {:016x}\n", checksum.digest());
        [MARK, fields.as_bytes()].concat()
    }
}

/// The content of a copy, in pieces.
pub(crate) type Pieces<'a> = [Cow<'a, [u8]>];

/// The length of a copy with this content.
pub(super) fn length(content: &Pieces<'_>) -> usize {
    HEADER + length_of(content)
}

fn length_of(content: &Pieces<'_>) -> usize {
    content.iter().map(|piece| piece.len()).sum()
}

/// Makes a new file whose first copy has this content.
///
/// The file has the room for the second copy from the start, so that later changes need no space on
/// the disk. If they did, a power failure might leave the old part of a copy without the new part.
pub(crate) fn new_file(content: &Pieces<'_>) -> Vec<u8> {
    let room = Room::in_new_file(length(content));
    let mut file = [room.header(content), content.concat()].concat();
    file.resize(2 * room.size, 0);
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
    let size = length / 2;
    if size < PAGE || !length.is_power_of_two() {
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

    fn copy(content: &[u8], room: Room) -> Vec<u8> {
        [&room.header(&[content.into()]), content].concat()
    }

    fn file_with(content: &[u8]) -> Vec<u8> {
        new_file(&[content.into()])
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
                if !room.suits(copy.len()) {
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
                // The last page of each room has nothing but zeros.
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
        let file = tempfile::NamedTempFile::new().unwrap();
        let old = new_file(&pieces[..2_900]);
        std::fs::write(&file, &old).unwrap();
        let (_, room) = newest(&old).unwrap();
        room.write(file.as_file(), &pieces).unwrap();
        assert_eq!(content_of(&std::fs::read(&file).unwrap()), pieces.concat());
    }

    #[test]
    fn a_file_that_is_much_too_large_for_its_state_is_replaced() {
        let room = Room::in_new_file(100_000);
        assert_eq!(file_with(&[0; 100_000]).len(), 2 * 131_072);
        assert!(room.suits(131_072) && room.suits(16_384) && room.suits(8_193));
        assert!(!room.suits(131_073) && !room.suits(8_192));
        assert!(Room::in_new_file(0).suits(0));
    }
}
