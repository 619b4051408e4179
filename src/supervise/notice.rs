//! How a keeper hears on its own host that the script has released the lock: from the server it might
//! hear too late, or not at all.
//!
//! A notice is a connection, and nothing is said on it. It makes the keeper ask the server at once,
//! whose word alone counts, and stays open until the server has answered.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Uid, getuid};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::lock::Token;
use crate::system::clock::Instant;

/// How many notices are taken at a time, and how many wait for that.
const BACKLOG: i32 = 8;

/// Between two looks, so that a flood costs next to nothing.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a release waits for the keeper, which needs one answer of the server's.
const PATIENCE: Duration = Duration::from_secs(1);

/// A socket without a file, which ends with the keeper. Everybody on the host can see its name, which
/// does not tell the token, and connect to it.
pub(crate) struct Notice {
    socket: Socket,
    /// They wait for the server's answer.
    waiting: Vec<Socket>,
    next_look: Instant,
}

impl Notice {
    pub(crate) fn await_for(token: &Token) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&address(token)?)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, waiting: Vec::new(), next_look: Instant::now() })
    }

    /// Tells the keeper of this hold, if there is one on this host, and waits until it knows from the
    /// server.
    pub(crate) fn give(token: &Token) {
        // A failure only means that the keeper hears later.
        let _ = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
            // That of a full backlog too.
            socket.set_write_timeout(Some(PATIENCE))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect(&address(token)?)?;
            socket.recv(&mut [MaybeUninit::uninit()])
        });
    }

    /// When to look again, if that is not just when somebody comes.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        (now < self.next_look).then_some(self.next_look)
    }

    /// Has one been given since the last look, by somebody who might end the keeper as well?
    pub(crate) fn is_given(&mut self, now: Instant) -> bool {
        if now < self.next_look {
            return false;
        }
        let before = self.waiting.len();
        for _ in 0..BACKLOG {
            let peer = match self.socket.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                accepted => accepted,
            };
            self.next_look = now + PAUSE;
            // No descriptor left, perhaps.
            let Ok((peer, _)) = peer else { break };
            if self.waiting.len() < 2 * BACKLOG as usize && may_tell(&peer) {
                self.waiting.push(peer);
            }
        }
        self.waiting.len() > before
    }

    /// The server has answered, or has not, and those who wait may go on.
    pub(crate) fn is_answered(&mut self) {
        self.waiting.clear();
    }
}

impl AsFd for Notice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// As the kernel decides who may send a signal.
fn may_tell(peer: &Socket) -> bool {
    user_of(peer).is_ok_and(|user| user == getuid() || user.is_root())
}

/// Who has connected.
fn user_of(peer: &Socket) -> nix::Result<Uid> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are valid to be written to, and the length is that of the structure.
    let asked = unsafe {
        let credentials = (&raw mut credentials).cast();
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        libc::getsockopt(peer.as_raw_fd(), level, option, credentials, &raw mut length)
    };
    Errno::result(asked)?;
    Ok(Uid::from_raw(credentials.uid))
}

/// A name that begins with a zero byte is no file.
fn address(token: &Token) -> io::Result<SockAddr> {
    let mut hasher = DefaultHasher::new();
    token.as_str().hash(&mut hasher);
    SockAddr::unix(format!("\0rlock-keeper-{:016x}", hasher.finish()))
}
