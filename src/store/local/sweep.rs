//! Cleaning up, so that a directory does not fill with the files of locks that nobody uses any more.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::directory::{Directory, is_of_lock};
use super::file::remove_if_unused;
use super::mailbox::MAIL;

/// For how long a fence outlives its last use, and what is left behind its owner.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Says by its age when a directory was last cleaned up.
const SWEPT: &str = ".swept";

/// Removes what has been of no use for a day, once a day: files of locks that are free, mailboxes of
/// waiters that died with the machine. What cannot be removed stays.
pub(super) fn once_a_day(directory: &Directory) {
    let swept = directory.path().join(SWEPT);
    if is_young(&swept) || fs::write(&swept, "").is_err() {
        return;
    }
    let _ = directory.each_file(&mut |name, path| {
        if is_young(path) {
        } else if is_of_lock(name) {
            let _ = remove_if_unused(path);
        } else if name.starts_with(MAIL) {
            let _ = fs::remove_file(path);
        }
    });
}

/// Was it written within the last day, by the wall clock? What is not there was not.
fn is_young(path: &Path) -> bool {
    let written = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    written.is_ok_and(|written| written.elapsed().map_or(true, |age| age <= DAY))
}
