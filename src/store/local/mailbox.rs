//! How a waiter is woken: each has a named pipe that only it reads.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::fcntl::OFlag;

use super::folder::Folder;
use super::names;
use crate::rules::model::Message;

/// The message to a new head of the queue.
const HEAD: u8 = b'h';

/// How many messages a waiter reads at once.
const MOST_MESSAGES: u64 = 4096;

/// The waiter's end. Messages stay in the pipe while it is open. It is removed when dropped.
pub(super) struct Mailbox {
    folder: Arc<Folder>,
    name: String,
    pipe: File,
}

impl Mailbox {
    /// Makes the mailbox of the waiter with this token.
    pub(super) fn open(folder: &Arc<Folder>, token: &str) -> io::Result<Self> {
        let name = names::mail(token);
        folder.make_pipe(&name)?;
        // Open it for writing too: a pipe without a writer always counts as ended.
        let pipe = folder.pipe(&name, OFlag::O_RDWR).inspect_err(|_| remove(folder, token))?;
        Ok(Self { folder: folder.clone(), name, pipe })
    }

    /// Whether other processes can still find it in the folder. A user may have removed it.
    pub(super) fn is_in(&self, folder: &Folder) -> bool {
        matches!(folder.status_of(&self.name), Ok(Some(_)))
    }

    /// Becomes readable when a message arrives.
    pub(super) fn arrival(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Reads the messages. Returns true if there is at least one, and each says that the waiter is
    /// the new head of the queue.
    pub(super) fn says_head(&self) -> bool {
        let mut messages = Vec::new();
        // The pipe does not block, so an error means that no message is left. Another user of a
        // shared directory may send messages without end.
        let _ = (&self.pipe).take(MOST_MESSAGES).read_to_end(&mut messages);
        !messages.is_empty() && messages.iter().all(|message| *message == HEAD)
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let _ = self.folder.remove(&self.name);
    }
}

/// Wakes the waiter with this token. The message to a dead waiter is dropped; the lock model drops
/// the waiter later.
pub(super) fn wake(folder: &Folder, token: &str, message: &Message) {
    let byte = match message {
        Message::Head => HEAD,
        Message::Look | Message::Nominated(_) => b'!',
    };
    let pipe = folder.pipe(&names::mail(token), OFlag::O_WRONLY);
    let _ = pipe.and_then(|mut pipe| pipe.write_all(&[byte]));
}

/// Removes the mailbox of a dead waiter.
pub(super) fn remove(folder: &Folder, token: &str) {
    let _ = folder.remove(&names::mail(token));
}

/// Whether a live waiter reads the mailbox, whatever its age. If permissions make it
/// impossible to tell, the answer is yes. A file that is not a named pipe has no reader.
pub(super) fn is_read(folder: &Folder, name: &str) -> bool {
    match folder.pipe(name, OFlag::O_WRONLY) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}
