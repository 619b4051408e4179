//! Why the files of a lock cannot be used.

use std::io;
use std::path::Path;

use crate::report::plain;
use crate::rules::{Failure, SystemCall};
use crate::store::denial;
use crate::system::call::errno;

/// Classifies a system error about the boot ID.
pub(super) fn without_boot_id(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::misconfigured("the boot ID is missing", "mount /proc without subset=pid")
        }
        _ => of(Path::new("/proc"), error, false),
    }
}

/// Classifies an error about a file: the system lacks space or descriptors now, or the user must
/// change something first. After files have served this run, the user is probably changing it.
pub(super) fn of(path: &Path, error: &io::Error, have_served: bool) -> Failure {
    let failure = match (errno(error), error.kind()) {
        (None, io::ErrorKind::StorageFull) => {
            Failure::unavailable(plain(error), "start fewer clients at once")
        }
        // What is wrong with the file itself lasts.
        (None, _) => denial::failure(SystemCall::LockFile, error),
        _ => denial::failure(SystemCall::LockFile, error).once_served(have_served),
    };
    failure.reworded(|why| format!("{}: {why}", path.display()))
}
