//! How a waiter is woken: a named pipe of its own, which only it reads.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::directory::Directory;
use super::error::Error;

/// What the name of each begins with.
pub(super) const MAIL: &str = ".mail-";

/// A waiter's own end. While it is open, a message waits in it; it is removed with its waiter.
pub(super) struct Mailbox {
    path: PathBuf,
    pipe: File,
}

impl Mailbox {
    pub(super) fn open(directory: &Directory, token: &str) -> Result<Self, Error> {
        let path = path(directory, token);
        // Not the path itself, which has the token in it.
        let fail = |error: std::io::Error| Error::of(directory.path(), &error);
        match mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(fail(errno.into())),
        }
        // For writing too: without a writer it would count as ended all the time.
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let pipe = options.open(&path).map_err(fail)?;
        Ok(Self { path, pipe })
    }

    /// Becomes readable when there is something to look at.
    pub(super) fn arrival(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    pub(super) fn empty(&self) {
        let mut messages = [0; 64];
        while matches!((&self.pipe).read(&mut messages), Ok(1..)) {}
    }

    /// Wakes a waiter. One that is dead has nobody at the other end, and its turn passes.
    pub(super) fn wake(directory: &Directory, token: &str) {
        let mut options = OpenOptions::new();
        let pipe = options.write(true).custom_flags(libc::O_NONBLOCK).open(path(directory, token));
        let _ = pipe.and_then(|mut pipe| pipe.write_all(b"!"));
    }

    /// Removes what a dead waiter has left behind.
    pub(super) fn remove(directory: &Directory, token: &str) {
        let _ = fs::remove_file(path(directory, token));
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Tokens are uuids of ours, and what else may stand in a file is no way out of the directory.
fn path(directory: &Directory, token: &str) -> PathBuf {
    let name: String = token.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    directory.path().join(format!("{MAIL}{name}"))
}
