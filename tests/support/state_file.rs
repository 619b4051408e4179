//! The state file of a lock on `local:`, as a test sees and changes it.

use std::fs;
use std::path::Path;

/// The JSON text of the state, in either format.
pub fn read(file: &Path) -> String {
    let file = fs::read_to_string(file).unwrap();
    // Each copy begins with its sequence number.
    let newest = file.split("rlock lock 3 ").max().unwrap();
    newest.lines().nth(1).unwrap().to_owned()
}

/// Writes a state in the earlier format, which has no checksum.
pub fn write(file: &Path, json: &str) {
    fs::write(file, format!("rlock lock 2\n{json}\n")).unwrap();
}
