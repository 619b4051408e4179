//! The state file of a lock on `local:`, as a test sees and changes it.

use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const MARK: &str = "rlock lock 5 ";

/// The state: a line of JSON for the lock, and one for each waiter.
pub fn read(file: &Path) -> String {
    let file = fs::read_to_string(file).unwrap();
    let (lock, waiters) = newest(&file);
    let waiters = waiters.into_iter().map(|waiter| format!("{}\n", &file[waiter]));
    format!("{lock}\n{}", waiters.collect::<String>())
}

/// Loses the details of a waiter, whose number in the queue counts from 0.
pub fn lose_details(file: &Path, waiter: usize) {
    let state = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let state = Flock::lock(state, FlockArg::LockExclusive).unwrap();
    let text = fs::read_to_string(file).unwrap();
    let details = newest(&text).1[waiter].clone();
    state.write_all_at(&vec![0; details.len()], details.start as u64).unwrap();
}

/// The line of the newest copy for the lock, and where the details of each waiter are.
fn newest(file: &str) -> (&str, Vec<Range<usize>>) {
    let details = file.len() / 3 * 2;
    // Each copy begins with its sequence number.
    let newest = file.split(MARK).max().unwrap();
    let (header, rest) = newest.split_once('\n').unwrap();
    let length = header.split(' ').nth(1).unwrap();
    let number = |digits| usize::from_str_radix(digits, 16).unwrap();
    let (lock, index) = rest[..number(length)].split_once('\n').unwrap();
    let waiters = index.lines().map(|line| {
        let start = details + number(&line[..8]);
        start..start + number(&line[8..16])
    });
    (lock, waiters.collect())
}

/// Makes this the state.
pub fn write(file: &Path, state: &str) {
    let (lock, waiters) = state.split_once('\n').unwrap_or((state, ""));
    let (mut index, mut details) = (String::new(), Vec::<u8>::new());
    for waiter in waiters.lines() {
        let fields: serde_json::Value = serde_json::from_str(waiter).unwrap();
        let token = fields["token"].as_str().unwrap_or_default();
        index.push_str(&format!("{:08x}{:08x}{token}\n", details.len(), waiter.len()));
        details.extend(waiter.as_bytes());
    }
    let copy = match state.contains('\n') {
        true => format!("{lock}\n{index}"),
        false => state.to_owned(),
    };
    let checksum = xxh3_64_with_seed(copy.as_bytes(), 1);
    let copy = format!("{MARK}{:016x} {:08x} {checksum:016x}\n{copy}", 1, copy.len());
    let size = copy.len().max(details.len()).next_power_of_two().max(4096);
    let mut bytes = copy.into_bytes();
    bytes.resize(2 * size, 0);
    bytes.extend(details);
    bytes.resize(3 * size, 0);
    fs::write(file, bytes).unwrap();
}
