//! The replies of several members to one request, in the order in which they arrive.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::report::Diagnostic;
use crate::store::{Failure, Interrupt};
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};

/// One member's reply.
pub(super) struct MemberReply<T> {
    pub(super) number: usize,
    pub(super) answer: Result<T, Failure>,
    /// What there is to report about the member's server.
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// The end on which members reply.
pub(in crate::store::quorum) struct ReplySender<T> {
    replies: Sender<MemberReply<T>>,
    wires: Arc<Wires>,
}

/// The end on which the replies arrive.
pub(in crate::store::quorum) struct Replies<T> {
    replies: Receiver<MemberReply<T>>,
    wires: Arc<Wires>,
}

/// Two ends of one wire, on which either side can wake the other.
struct Wires {
    of_box: UnixStream,
    of_members: UnixStream,
}

/// The two ends for one request. An error means that the system has no descriptors left.
pub(in crate::store::quorum) fn open<T>() -> io::Result<(ReplySender<T>, Replies<T>)> {
    let (sender, receiver) = channel();
    let (of_box, of_members) = UnixStream::pair()?;
    // A bell that has been rung often enough need not be rung again.
    of_members.set_nonblocking(true)?;
    of_box.set_nonblocking(true)?;
    let wires = Arc::new(Wires { of_box, of_members });
    let reply_sender = ReplySender { replies: sender, wires: Arc::clone(&wires) };
    Ok((reply_sender, Replies { replies: receiver, wires }))
}

impl<T> Clone for ReplySender<T> {
    fn clone(&self) -> Self {
        Self { replies: self.replies.clone(), wires: Arc::clone(&self.wires) }
    }
}

impl<T> ReplySender<T> {
    /// Sends a reply. It is dropped if it is not awaited any more.
    pub(super) fn send(&self, reply: MemberReply<T>) {
        let _ = self.replies.send(reply);
        let _ = (&self.wires.of_members).write(b"!");
    }

    /// Becomes readable when the request is withdrawn.
    pub(super) fn withdrawal(&self) -> BorrowedFd<'_> {
        self.wires.of_members.as_fd()
    }
}

impl<T> Replies<T> {
    /// Stops members from working on the request. What they have sent may still take effect.
    pub(super) fn withdraw(&self) {
        let _ = (&self.wires.of_box).write(b"!");
    }

    /// The next reply; `None` if there is none until `until`. An error means that the interrupt came
    /// first, or that the system cannot wait.
    pub(super) fn next(
        &self,
        until: Instant,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<MemberReply<T>>, Failure> {
        loop {
            if let Ok(reply) = self.replies.try_recv() {
                return Ok(Some(reply));
            }
            let bell = (self.wires.of_box.as_fd(), Want::Read);
            let woken = match interrupt {
                Some(interrupt) => ready([bell, (interrupt, Want::Read)], Some(until)),
                None => ready([bell], Some(until)).map(|[rung]| [rung, false]),
            };
            match woken {
                Ok([_, true]) => return Err(Failure::Interrupted { sent: true }),
                Ok([true, false]) => {
                    let _ = (&self.wires.of_box).read(&mut [0; 64]);
                }
                Ok([false, false]) => return Ok(None),
                Err(error) => {
                    return Err(Failure::Unavailable(format!("cannot wait: {error}")));
                }
            }
        }
    }
}
