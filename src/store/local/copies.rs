//! The format of a state file, which a change overwrites in place.
//!
//! The file has two parts of the same size, each for a copy of the state. A change overwrites the
//! older copy, so a process that is killed during the change leaves the newer one. A header with a
//! sequence number and a checksum precedes each copy: only a copy that is whole counts, and of two,
//! the one with the larger number is newer.
//!
//! After a power failure, some pages of a file may be on disk without others. Each copy therefore
//! begins on a new page, and the checksum detects a copy whose pages are from different changes.

use std::cmp::Reverse;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::rules::FORMAT;

/// How each copy begins.
const MARK: &[u8] = b"rlock lock 1 ";
const _: () = assert!(MARK[MARK.len() - 2] == FORMAT.as_bytes()[0]);

/// The length of a header: the mark, and then the sequence number, the length of the content and
/// the checksum in hexadecimal, separated by spaces and ended by a line break.
const HEADER: usize = MARK.len() + 16 + 1 + 8 + 1 + 16 + 1;

/// How many bytes a system writes to disk at once.
const PAGE: usize = 4096;

/// The size of the largest file, in bytes. A larger one would take long to read, and another user
/// of a shared directory can make a file of any size.
pub(super) const LARGEST: u64 = 64 << 20;

/// The part of a file for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopySlot {
    /// The sequence number of the copy.
    sequence: u64,
    /// Where the copy begins.
    offset: usize,
    /// The longest copy that fits.
    size: usize,
}

impl CopySlot {
    pub(super) fn fits(&self, content: &[u8]) -> bool {
        HEADER + content.len() <= self.size
    }

    pub(super) fn write(&self, file: &File, content: &[u8]) -> io::Result<()> {
        file.write_all_at(&self.header(content), self.offset as u64)?;
        file.write_all_at(content, (self.offset + HEADER) as u64)
    }

    fn header(&self, content: &[u8]) -> Vec<u8> {
        let (sequence, length) = (self.sequence, content.len());
        let checksum = xxh3_64_with_seed(content, sequence);
        let fields = format!("{sequence:016x} {length:08x} {checksum:016x}\n");
        [MARK, fields.as_bytes()].concat()
    }
}

/// The bytes of a new file with this state.
///
/// The file has both parts from the start, so that later changes need no space on the disk. If they
/// did, a power failure might leave the old part of a copy without the new part.
pub fn new_file(content: &[u8]) -> Vec<u8> {
    let size = (HEADER + content.len()).next_power_of_two().max(PAGE);
    let slot = CopySlot { sequence: 1, offset: 0, size };
    let mut file = [&slot.header(content), content].concat();
    file.resize(2 * slot.size, 0);
    file
}

/// Returns the content of the newest copy in a file of `length` bytes, and the slot for the next
/// copy. Returns `None` if no copy is whole.
///
/// `read` takes the offset and the length of a part of the file, and returns that part. The content
/// of the older copy is read only if the newer one is not whole. The unused rest is never read.
pub(super) fn newest(
    length: usize,
    read: impl Fn(usize, usize) -> io::Result<Vec<u8>>,
) -> io::Result<Option<(Vec<u8>, CopySlot)>> {
    // A file that has lost a part might have lost the newest copy.
    let size = length / 2;
    if size < PAGE || !size.is_power_of_two() || length != 2 * size {
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
            let slot = |sequence| CopySlot { sequence, offset: next, size };
            return Ok(sequence.map(|sequence| (content, slot(sequence))));
        }
    }
    Ok(None)
}

/// Whether a file that begins so has another format.
pub(super) fn is_of_another_format(beginning: &[u8]) -> bool {
    beginning.starts_with(b"rlock lock ") && !beginning.starts_with(MARK)
}

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

    fn newest(file: &[u8]) -> Option<(Vec<u8>, CopySlot)> {
        let read = |offset: usize, length| Ok(file[offset..offset + length].to_vec());
        super::newest(file.len(), read).unwrap()
    }

    fn copy(content: &[u8], slot: CopySlot) -> Vec<u8> {
        [&slot.header(content), content].concat()
    }

    /// The file after the first `written` bytes of a copy were written.
    fn overwritten(file: &[u8], copy: &[u8], slot: CopySlot, written: usize) -> Vec<u8> {
        let mut file = file.to_vec();
        file[slot.offset..slot.offset + written].copy_from_slice(&copy[..written]);
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
            let mut file = new_file(&contents[0]);
            for pair in contents.windows(2) {
                let [old, new] = [&pair[0], &pair[1]];
                prop_assert_eq!(&content_of(&file), old);
                let (_, slot) = newest(&file).unwrap();
                let copy = copy(new, slot);
                if !slot.fits(new) {
                    file = new_file(new);
                    continue;
                }
                let whole = overwritten(&file, &copy, slot, copy.len());
                let pages = (0..copy.len()).step_by(PAGE).chain(0..HEADER + 1);
                let pages = pages.filter(|&written| written < copy.len());
                for written in parts.iter().map(|part| part.index(copy.len())).chain(pages) {
                    let torn = overwritten(&file, &copy, slot, written);
                    // The rest may be what was there before.
                    if torn == whole {
                        continue;
                    }
                    prop_assert_eq!(&content_of(&torn), old, "{} bytes", written);
                    // A writer that follows puts the state in the same place.
                    prop_assert_eq!(newest(&torn).unwrap().1, slot);
                }
                file = whole;
                prop_assert_eq!(&content_of(&file), new);
            }
        }

        #[test]
        fn a_state_whose_pages_are_from_different_changes_does_not_count(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 3 * PAGE), 4),
            pages in prop::collection::vec(any::<bool>(), 8),
        ) {
            let mut files = vec![new_file(&contents[0])];
            for content in &contents[1..] {
                let last = files.last().unwrap();
                let (_, slot) = newest(last).unwrap();
                let copy = copy(content, slot);
                files.push(overwritten(last, &copy, slot, copy.len()));
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
    }
}
