//! What a sandbox or a container may lack: system calls and devices.

use std::io;

/// Names the system call or the device in its error, so that the user learns what is missing.
pub(crate) fn failed(what: &'static str, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{what}: {error}"))
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
