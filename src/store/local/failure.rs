//! Why the files of a lock cannot be used.

use std::io;
use std::path::Path;

use nix::errno::Errno;

use crate::report::plain;
use crate::rules::{Failure, UserMessage};
use crate::store::shortage;

/// The remedy for a directory that cannot be written.
pub(super) const NAME_ANOTHER: &str = "name a writable directory with local:/DIRECTORY";

/// Classifies a system error about the boot ID.
pub(super) fn without_boot_id(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::misconfigured("the boot ID is missing", "mount /proc without subset=pid")
        }
        _ => of(Path::new("/proc"), error),
    }
}

/// Classifies a system error about a file: the system lacks space or descriptors now, or the user
/// must change something first.
pub(super) fn of(path: &Path, error: &io::Error) -> Failure {
    let problem = format!("{}: {}", path.display(), plain(error));
    if let Some(remedy) = shortage::remedy(error) {
        return Failure::unavailable(problem, remedy);
    }
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EFBIG) => Failure::unavailable(problem, "raise ulimit -f"),
        Some(Errno::ENOSPC) => Failure::unavailable(problem, "free space on its file system"),
        Some(Errno::EDQUOT) => Failure::unavailable(problem, "raise the quota of its owner"),
        Some(Errno::EIO) => Failure::unavailable(problem, "check the disk"),
        Some(Errno::EACCES | Errno::EPERM) => Failure::misconfigured(
            problem,
            "run rlock as its owner, or share the directory: chgrp -R GROUP, chmod -R g+rwX and \
             chmod 2770 on it",
        ),
        Some(Errno::EROFS | Errno::ENOTDIR) => Failure::misconfigured(problem, NAME_ANOTHER),
        _ if error.kind() == io::ErrorKind::StorageFull => {
            Failure::unavailable(problem, "start fewer clients at once")
        }
        _ => Failure::Misconfigured { fault: UserMessage::new(problem), executed: false },
    }
}
