//! The replies of several members, in the order in which they arrive.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::report::Diagnostic;
use crate::rules::{Failure, Instant};
use crate::store::Interrupt;
use crate::store::waiting::answered;
use crate::system::wakeup::Wakeup;

/// One member's reply.
pub(in crate::store::quorum) struct MemberReply<T> {
    pub(in crate::store::quorum) number: usize,
    pub(in crate::store::quorum) answer: Result<T, Failure>,
    /// Messages about the member's server.
    pub(in crate::store::quorum) diagnostics: Vec<Diagnostic>,
}

/// The end on which members reply.
pub(in crate::store::quorum) struct ReplySender<T> {
    replies: Sender<MemberReply<T>>,
    arrival: Wakeup,
}

/// The end on which the replies arrive.
pub(in crate::store::quorum) struct Replies<T> {
    replies: Receiver<MemberReply<T>>,
    arrival: Wakeup,
}

/// The two ends. An error means that the system has no descriptors left.
pub(in crate::store::quorum) fn open<T>() -> io::Result<(ReplySender<T>, Replies<T>)> {
    let (sender, receiver) = channel();
    let arrival = Wakeup::new()?;
    let replies = Replies { replies: receiver, arrival: arrival.clone() };
    Ok((ReplySender { replies: sender, arrival }, replies))
}

impl<T> Clone for ReplySender<T> {
    fn clone(&self) -> Self {
        Self { replies: self.replies.clone(), arrival: self.arrival.clone() }
    }
}

impl<T> ReplySender<T> {
    /// Sends a reply. It is dropped if it is no longer awaited.
    pub(super) fn send(&self, reply: MemberReply<T>) {
        let _ = self.replies.send(reply);
        self.arrival.wake();
    }
}

impl<T> Replies<T> {
    /// The next reply; `None` if there is none until `until`. An error means that the interrupt
    /// came first, or that the system cannot wait.
    pub(in crate::store::quorum) fn next(
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
