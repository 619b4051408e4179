//! What can be wrong with files.

use std::io;
use std::path::Path;

use nix::errno::Errno;

use crate::report::plain;

/// Why a lock's file cannot be used.
#[derive(Debug)]
pub(super) enum Error {
    /// Another process does not let go of it.
    Busy,
    /// There is no room, now.
    Full(String),
    /// Until somebody changes something.
    Unusable(String),
}

impl Error {
    pub(super) fn of(path: &Path, error: &io::Error) -> Self {
        let what = format!("{}: {}", path.display(), plain(error));
        match error.raw_os_error().map(Errno::from_raw) {
            Some(
                Errno::ENOSPC
                | Errno::EDQUOT
                | Errno::EFBIG
                | Errno::EIO
                | Errno::EMFILE
                | Errno::ENFILE,
            ) => Self::Full(what),
            _ => Self::Unusable(what),
        }
    }
}
