//! The replies of several members to one request, in the order in which they arrive.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::report::Diagnostic;
use crate::store::waiting::answered;
use crate::store::{Failure, Interrupt};
use crate::system::clock::Instant;
use crate::system::wakeup::Wakeup;

/// One member's reply.
pub(super) struct MemberReply<T> {
    pub(super) number: usize,
    pub(super) answer: Result<T, Failure>,
    /// Messages about the member's server.
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// The end on which members reply.
pub(in crate::store::quorum) struct ReplySender<T> {
    replies: Sender<MemberReply<T>>,
    arrival: Wakeup,
    withdrawal: Wakeup,
}

/// The end on which the replies arrive.
pub(in crate::store::quorum) struct Replies<T> {
    replies: Receiver<MemberReply<T>>,
    arrival: Wakeup,
    withdrawal: Wakeup,
}

/// The two ends for one request. An error means that the system has no descriptors left.
pub(in crate::store::quorum) fn open<T>() -> io::Result<(ReplySender<T>, Replies<T>)> {
    let (sender, receiver) = channel();
    let (arrival, withdrawal) = (Wakeup::new()?, Wakeup::new()?);
    let replies =
        Replies { replies: receiver, arrival: arrival.clone(), withdrawal: withdrawal.clone() };
    Ok((ReplySender { replies: sender, arrival, withdrawal }, replies))
}

impl<T> Clone for ReplySender<T> {
    fn clone(&self) -> Self {
        let Self { replies, arrival, withdrawal } = self;
        Self { replies: replies.clone(), arrival: arrival.clone(), withdrawal: withdrawal.clone() }
    }
}

impl<T> ReplySender<T> {
    /// Sends a reply. It is dropped if it is no longer awaited.
    pub(super) fn send(&self, reply: MemberReply<T>) {
        let _ = self.replies.send(reply);
        self.arrival.wake();
    }

    /// Becomes readable when the request is withdrawn.
    pub(super) fn withdrawal(&self) -> BorrowedFd<'_> {
        self.withdrawal.as_fd()
    }
}

impl<T> Replies<T> {
    /// Stops members from working on the request. What they have sent may still take effect.
    pub(super) fn withdraw(&self) {
        self.withdrawal.wake();
    }

    /// The next reply; `None` if there is none until `until`. An error means that the interrupt
    /// came first, or that the system cannot wait.
    pub(super) fn next(
        &self,
        until: Instant,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<MemberReply<T>>, Failure> {
        loop {
            if let Ok(reply) = self.replies.try_recv() {
                return Ok(Some(reply));
            }
            if !answered(&self.arrival, interrupt, until)? {
                return Ok(None);
            }
            self.arrival.clear();
        }
    }
}
