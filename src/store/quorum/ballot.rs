//! One question to several members, and their answers as they come.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::clock::Instant;
use crate::poll::{Want, ready};
use crate::store::{Failure, Interrupt};

/// What a member has to say, by its number.
pub(super) type Vote<T> = (usize, Result<T, Failure>);

/// How a member answers.
pub(super) struct Ballot<T> {
    votes: Sender<Vote<T>>,
    bell: Arc<UnixStream>,
}

/// Where the answers arrive.
pub(super) struct BallotBox<T> {
    votes: Receiver<Vote<T>>,
    bell: UnixStream,
}

/// For one question.
pub(super) fn open<T>() -> io::Result<(Ballot<T>, BallotBox<T>)> {
    let (sender, receiver) = channel();
    let (bell, ringer) = UnixStream::pair()?;
    // A bell that has been rung often enough need not be rung again.
    ringer.set_nonblocking(true)?;
    bell.set_nonblocking(true)?;
    let ballot = Ballot { votes: sender, bell: Arc::new(ringer) };
    Ok((ballot, BallotBox { votes: receiver, bell }))
}

impl<T> Clone for Ballot<T> {
    fn clone(&self) -> Self {
        Self { votes: self.votes.clone(), bell: Arc::clone(&self.bell) }
    }
}

impl<T> Ballot<T> {
    /// If nobody waits for it any more, it was done all the same.
    pub(super) fn cast(&self, vote: Vote<T>) {
        let _ = self.votes.send(vote);
        let _ = (&*self.bell).write(b"!");
    }
}

impl<T> BallotBox<T> {
    /// The next vote; `None` if there is none in time. An error is the interrupt.
    pub(super) fn next(
        &self,
        until: Instant,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Vote<T>>, Failure> {
        loop {
            if let Ok(vote) = self.votes.try_recv() {
                return Ok(Some(vote));
            }
            let bell = (self.bell.as_fd(), Want::Read);
            let woken = match interrupt {
                Some(interrupt) => ready([bell, (interrupt, Want::Read)], Some(until)),
                None => ready([bell], Some(until)).map(|[rung]| [rung, false]),
            };
            match woken {
                Ok([_, true]) => return Err(Failure::Interrupted { sent: true }),
                Ok([true, false]) => {
                    let _ = (&self.bell).read(&mut [0; 64]);
                }
                Ok([false, false]) => return Ok(None),
                Err(error) => {
                    return Err(Failure::Unavailable(format!("cannot wait: {error}")));
                }
            }
        }
    }
}
