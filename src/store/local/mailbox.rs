//! How a waiter is woken: a named pipe of its own, which only it reads.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::fcntl::OFlag;

use super::directory::{is_mail, new_mail};
use super::folder::Folder;

/// A waiter's own end. While it is open, a message waits in it; it is removed with its waiter.
pub(super) struct Mailbox {
    folder: Arc<Folder>,
    name: String,
    pipe: File,
}

impl Mailbox {
    pub(super) fn open(folder: &Arc<Folder>) -> io::Result<Self> {
        let name = new_mail();
        folder.make_pipe(&name)?;
        // For writing too: without a writer it would count as ended all the time.
        let pipe = folder.pipe(&name, OFlag::O_RDWR).inspect_err(|_| remove(folder, &name))?;
        Ok(Self { folder: folder.clone(), name, pipe })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Is it where others look for it? Somebody may have removed it.
    pub(super) fn is_in(&self, folder: &Folder) -> bool {
        matches!(folder.status_of(&self.name), Ok(Some(_)))
    }

    /// Becomes readable when there is something to look at.
    pub(super) fn arrival(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    pub(super) fn empty(&self) {
        let mut messages = [0; 64];
        while matches!((&self.pipe).read(&mut messages), Ok(1..)) {}
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        remove(&self.folder, &self.name);
    }
}

/// Wakes the waiter that reads a mailbox. One that is dead does not, and its turn passes.
pub(super) fn wake(folder: &Folder, name: &str) {
    if is_mail(name) {
        let _ = folder.pipe(name, OFlag::O_WRONLY).and_then(|mut pipe| pipe.write_all(b"!"));
    }
}

/// Removes what a dead waiter has left behind.
pub(super) fn remove(folder: &Folder, name: &str) {
    if is_mail(name) {
        let _ = folder.remove(name);
    }
}

/// Does anybody read it, as far as we may ask? A dead waiter does not, however long ago a live one
/// has made its mailbox. What is not a named pipe is nobody's.
pub(super) fn is_read(folder: &Folder, name: &str) -> bool {
    match folder.pipe(name, OFlag::O_WRONLY) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}
