//! Errors of the system, as failures of a request.

use std::io;
use std::path::Path;

use rustix::fs::Access;

use crate::report::plain;
use crate::rules::{Blame, Failure, SystemCall};
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
    match failure(call, error) {
        Failure::Misconfigured { fault, executed } => {
            let missing = match error.kind() {
                io::ErrorKind::PermissionDenied => rights::missing(path, access),
                _ => None,
            };
            let fault = match missing {
                Some(missing) => fault.with_remedy(missing),
                None => fault,
            };
            Failure::Misconfigured { fault, executed }
        }
        failure => failure,
    }
}
