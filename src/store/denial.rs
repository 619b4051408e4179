//! Errors of the system, as failures of a request.

use std::io;
use std::path::Path;

use rustix::fs::Access;

use crate::report::plain;
use crate::rules::{Blame, Failure, FailureKind, SystemCall};
use crate::system::call::errno;
use crate::system::rights;

/// What an error of this call means, and whom to blame.
pub(super) fn blamed(call: SystemCall, error: &io::Error) -> (Blame, Failure) {
    call.failed(errno(error), plain(error))
}

/// What an error of this call means.
pub(crate) fn failure(call: SystemCall, error: &io::Error) -> Failure {
    blamed(call, error).1
}

/// What an error of this call with this path means. If this user lacks a permission, names it.
pub(crate) fn failure_at(path: &Path, call: SystemCall, error: &io::Error) -> Failure {
    let access = if call == SystemCall::Read { Access::READ_OK } else { Access::WRITE_OK };
    let failure = failure(call, error);
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    let is_lasting = failure.kind == FailureKind::Misconfigured;
    match (is_denied && is_lasting).then(|| rights::missing(path, access)).flatten() {
        Some(missing) => Failure { fault: failure.fault.with_remedy(missing), ..failure },
        None => failure,
    }
}
