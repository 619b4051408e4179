//! What a sandbox or a container may lack: system calls and devices.

use std::error::Error;
use std::fmt;
use std::io;

use nix::errno::Errno;

/// An error with the name of the system call or the device that caused it.
#[derive(Debug)]
struct FailedCall {
    name: &'static str,
    error: io::Error,
}

impl Error for FailedCall {}

impl fmt::Display for FailedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.error)
    }
}

/// Names the system call or the device in its error, so that the user learns what is missing.
pub(crate) fn failed(name: &'static str, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), FailedCall { name, error })
}

/// The number of an error of the system, whether it has a name or not.
pub(crate) fn errno(error: &io::Error) -> Option<Errno> {
    let named = error.get_ref().and_then(|inner| inner.downcast_ref::<FailedCall>());
    named.map_or(error, |named| &named.error).raw_os_error().map(Errno::from_raw)
}

/// A result of a system call.
pub(crate) trait Named<T> {
    /// The result, with this name in its error.
    fn named(self, what: &'static str) -> io::Result<T>;
}

impl<T, E: Into<io::Error>> Named<T> for Result<T, E> {
    fn named(self, what: &'static str) -> io::Result<T> {
        self.map_err(|error| failed(what, error))
    }
}
