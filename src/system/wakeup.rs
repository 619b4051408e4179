//! How one thread wakes another that waits for descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::system::call::Named;

/// Something that any thread can make readable. Its clones are the same wake-up.
///
/// This is an eventfd(2), because it needs one descriptor while a socket pair needs two, and
/// because several wake-ups before the next `clear` count as one.
#[derive(Clone)]
pub(crate) struct Wakeup(Arc<EventFd>);

impl Wakeup {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags).named("eventfd2")?)))
    }

    /// Makes it readable until the next `clear`.
    pub(crate) fn wake(&self) {
        // This fails only after 2^64 - 2 wake-ups without a `clear`, and then it is readable
        // anyway.
        let _ = self.0.write(1);
    }

    /// Makes it unreadable until the next `wake`.
    pub(crate) fn clear(&self) {
        // This fails only if there is nothing to clear.
        let _ = self.0.read();
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
