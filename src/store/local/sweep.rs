//! Cleanup, so that a directory does not fill with the files of unused locks.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::OFlag;
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;

use super::clock::Clock;
use super::directory::{Directory, LockPaths};
use super::file::LockFile;
use super::folder::{Folder, is_file};
use super::mailbox;
use super::names::{STATE, decoded, hidden_as, is_draft, is_mail};
use crate::rules::{Instant, millis};

/// How long files are kept after their last use.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The longest time that a cleanup may delay the exit.
const AT_MOST: Duration = Duration::from_secs(1);

/// A file whose modification time is that of the last cleanup.
const SWEPT: &str = ".swept";

/// Removes, once a day, files that have not been used for a day: those of free locks, mailboxes
/// without a reader, and drafts of processes that were killed. Files that cannot be removed stay,
/// and so do those that rlock did not make: it recognizes its own by the form of the whole name.
///
/// Call this after a release, because other users of the directory can make it take long.
pub(super) fn once_a_day(directory: &Directory, clock: &Clock) {
    // This runs with each release, so check the mark without opening the directory.
    let swept = fs::symlink_metadata(directory.path().join(SWEPT));
    let is_mark = |it: &Metadata| it.is_file() && it.nlink() == 1;
    if swept.is_ok_and(|it| is_mark(&it) && !is_old(it.mtime())) {
        return;
    }
    let Ok(Some(folder)) = directory.open(false) else { return };
    if mark_as_swept(&folder).is_err() {
        return;
    }
    let Ok(names) = folder.names() else { return };
    let (folder, until) = (Arc::new(folder), Instant::now() + AT_MOST);
    for name in names.take_while(|_| Instant::now() < until) {
        remove_if_unused(directory, &folder, &name, clock);
    }
}

fn remove_if_unused(directory: &Directory, folder: &Arc<Folder>, name: &str, clock: &Clock) {
    let encoded = hidden_as(name, STATE).filter(|encoded| decoded(encoded).is_some());
    if encoded.is_none() && !is_mail(name) && !is_draft(name) {
        return;
    }
    match folder.status_of(name) {
        Ok(Some(status)) if is_old(status.st_mtime) => {}
        _ => return,
    }
    if let Some(encoded) = encoded {
        let paths = LockPaths::new(folder.clone(), encoded, directory);
        if let Some(file) = LockFile::open_idle(paths, clock) {
            let moment = file.now().saturating_sub(millis(DAY));
            let _ = file.remove_if_unused_since(moment);
        }
    } else if is_draft(name) || !mailbox::is_read(folder, name) {
        let _ = folder.remove(name);
    }
}

/// Sets the mark, so that no process cleans up for a day. A link in its place is removed first.
fn mark_as_swept(folder: &Folder) -> io::Result<()> {
    if folder.status_of(SWEPT)?.is_some_and(|status| !is_file(&status)) {
        folder.remove(SWEPT)?;
    }
    let mark = match folder.file(SWEPT, OFlag::O_WRONLY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder.new_file(SWEPT)?,
        opened => opened?.0,
    };
    // Only the owner of the file may set another time than the present one.
    Ok(futimens(&mark, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)?)
}

/// Whether a time, in seconds since the epoch, is more than a day ago by the wall clock.
fn is_old(written: i64) -> bool {
    let written = Duration::from_secs(u64::try_from(written).unwrap_or(0));
    SystemTime::now().duration_since(UNIX_EPOCH + written).is_ok_and(|age| age > DAY)
}
