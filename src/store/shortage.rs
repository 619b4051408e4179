//! What this host lacks, so that no server could be asked.

use std::io;

use nix::errno::Errno;

use crate::report::plain;
use crate::rules::Failure;

/// What to report if a thread or a descriptor could not be had.
pub(super) fn failure(error: &io::Error) -> Failure {
    let remedy = remedy(error).unwrap_or("check the limits that ulimit -a shows");
    Failure::unavailable(plain(error), remedy)
}

/// The remedy if the system denied a resource. No server is at fault then.
pub(super) fn remedy(error: &io::Error) -> Option<&'static str> {
    match Errno::from_raw(error.raw_os_error()?) {
        Errno::EMFILE => Some("raise ulimit -n"),
        Errno::ENFILE => Some("raise fs.file-max"),
        Errno::EAGAIN => Some("raise ulimit -u"),
        Errno::ENOMEM | Errno::ENOBUFS => Some("free memory"),
        _ => None,
    }
}
