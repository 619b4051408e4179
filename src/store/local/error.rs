//! Why the files of a lock cannot be used.

use std::io;
use std::path::Path;

use nix::errno::Errno;

use crate::report::plain;
use crate::rules::UserMessage;

/// The remedy for a directory that cannot be written.
pub(super) const NAME_ANOTHER: &str = "name a writable directory with local:/DIRECTORY";

/// Why the files of a lock cannot be used.
#[derive(Debug)]
pub(super) enum Error {
    /// Another process has locked the file for too long.
    Busy,
    /// The interrupt came before the file was locked.
    Interrupted,
    /// The system lacks space or descriptors now.
    Full(UserMessage),
    /// The user must change something first.
    Unusable(UserMessage),
}

impl Error {
    /// Classifies a system error about the boot ID.
    pub(super) fn without_boot_id(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            let fault = UserMessage::new("the boot ID is missing");
            return Self::Unusable(fault.with_remedy("mount /proc"));
        }
        Self::of(Path::new("/proc"), error)
    }

    /// Classifies a system error about a file.
    pub(super) fn of(path: &Path, error: &io::Error) -> Self {
        let fault = UserMessage::new(format!("{}: {}", path.display(), plain(error)));
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EFBIG) => Self::Full(fault.with_remedy("raise ulimit -f")),
            Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EIO | Errno::EMFILE | Errno::ENFILE) => {
                Self::Full(fault)
            }
            Some(Errno::EACCES | Errno::EPERM) => Self::Unusable(fault.with_remedy(
                "use its owner, or share the directory: chgrp -R GROUP and chmod 2770 on it",
            )),
            Some(Errno::EROFS) => Self::Unusable(fault.with_remedy(NAME_ANOTHER)),
            _ if error.kind() == io::ErrorKind::StorageFull => Self::Full(fault),
            _ => Self::Unusable(fault),
        }
    }
}
