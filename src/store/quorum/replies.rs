//! One question to several members, and their answers as they come.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::report::Diagnostic;
use crate::store::{Failure, Interrupt};
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};

/// What a member has to say.
pub(super) struct MemberReply<T> {
    pub(super) number: usize,
    pub(super) answer: Result<T, Failure>,
    /// About itself.
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// How a member answers.
pub(super) struct ReplySender<T> {
    votes: Sender<MemberReply<T>>,
    wires: Arc<Wires>,
}

/// Where the answers arrive.
pub(super) struct Replies<T> {
    votes: Receiver<MemberReply<T>>,
    wires: Arc<Wires>,
}

/// Two ends of one wire, on which either side can wake the other.
struct Wires {
    of_box: UnixStream,
    of_members: UnixStream,
}

/// For one question.
pub(super) fn open<T>() -> io::Result<(ReplySender<T>, Replies<T>)> {
    let (sender, receiver) = channel();
    let (of_box, of_members) = UnixStream::pair()?;
    // A bell that has been rung often enough need not be rung again.
    of_members.set_nonblocking(true)?;
    of_box.set_nonblocking(true)?;
    let wires = Arc::new(Wires { of_box, of_members });
    let reply_sender = ReplySender { votes: sender, wires: Arc::clone(&wires) };
    Ok((reply_sender, Replies { votes: receiver, wires }))
}

impl<T> Clone for ReplySender<T> {
    fn clone(&self) -> Self {
        Self { votes: self.votes.clone(), wires: Arc::clone(&self.wires) }
    }
}

impl<T> ReplySender<T> {
    /// If nobody waits for it any more, it was done all the same.
    pub(super) fn cast(&self, vote: MemberReply<T>) {
        let _ = self.votes.send(vote);
        let _ = (&self.wires.of_members).write(b"!");
    }

    /// Becomes readable when the question is withdrawn.
    pub(super) fn withdrawal(&self) -> BorrowedFd<'_> {
        self.wires.of_members.as_fd()
    }
}

impl<T> Replies<T> {
    /// Cuts short what members are doing to answer. What they have sent by then may be done.
    pub(super) fn withdraw(&self) {
        let _ = (&self.wires.of_box).write(b"!");
    }

    /// The next vote; `None` if there is none in time. An error is the interrupt.
    pub(super) fn next(
        &self,
        until: Instant,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<MemberReply<T>>, Failure> {
        loop {
            if let Ok(vote) = self.votes.try_recv() {
                return Ok(Some(vote));
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
