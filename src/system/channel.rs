//! A channel between threads whose receiver can wait for descriptors too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;

use crate::system::wakeup::Wakeup;

/// The end that sends. Its clones send to the same receiver.
pub(crate) struct Sender<T> {
    values: mpsc::Sender<T>,
    wakeup: Wakeup,
}

/// The end that receives. Becomes readable when a value arrives.
pub(crate) struct Receiver<T> {
    values: mpsc::Receiver<T>,
    wakeup: Wakeup,
}

/// The two ends. An error means that the system has no descriptors left.
pub(crate) fn channel<T>() -> io::Result<(Sender<T>, Receiver<T>)> {
    let (sender, receiver) = mpsc::channel();
    let wakeup = Wakeup::new()?;
    let receiver = Receiver { values: receiver, wakeup: wakeup.clone() };
    Ok((Sender { values: sender, wakeup }, receiver))
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), wakeup: self.wakeup.clone() }
    }
}

impl<T> Sender<T> {
    /// Sends a value. It is dropped if it is no longer awaited.
    pub(crate) fn send(&self, value: T) {
        self.send_quietly(value);
        self.wakeup.wake();
    }

    /// Sends a value that need not be read before the next one.
    pub(crate) fn send_quietly(&self, value: T) {
        let _ = self.values.send(value);
    }
}

impl<T> Receiver<T> {
    /// The next value, if one has arrived.
    pub(crate) fn next(&self) -> Option<T> {
        self.next_at_once().or_else(|| {
            self.clear();
            // One may have arrived just before that.
            self.next_at_once()
        })
    }

    /// The same without a system call. Afterward, the receiver stays readable until `clear`.
    pub(crate) fn next_at_once(&self) -> Option<T> {
        self.values.try_recv().ok()
    }

    /// Makes it unreadable until the next value arrives. Take the values that have arrived after that.
    pub(crate) fn clear(&self) {
        self.wakeup.clear();
    }
}

impl<T> AsFd for Receiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}
