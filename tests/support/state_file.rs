//! The state file of a lock on `local:`, as a test sees and changes it.

use std::fs;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64_with_seed;

const MARK: &str = "rlock lock 1 ";

/// The content of the newest copy, which is JSON.
pub fn read(file: &Path) -> String {
    let file = fs::read_to_string(file).unwrap();
    // Each copy begins with its sequence number.
    let newest = file.split(MARK).max().unwrap();
    let (header, rest) = newest.split_once('\n').unwrap();
    let length = header.split(' ').nth(1).unwrap();
    rest[..usize::from_str_radix(length, 16).unwrap()].to_owned()
}

/// Makes this the state.
pub fn write(file: &Path, content: &str) {
    let checksum = xxh3_64_with_seed(content.as_bytes(), 1);
    let copy = format!("{MARK}{:016x} {:08x} {checksum:016x}\n{content}", 1, content.len());
    let size = copy.len().next_power_of_two().max(4096);
    let mut bytes = copy.into_bytes();
    bytes.resize(2 * size, 0);
    fs::write(file, bytes).unwrap();
}
