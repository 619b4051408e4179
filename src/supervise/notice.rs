//! How a keeper learns on its own host that the script has released the lock. It might learn that
//! from the server too late, or not at all.
//!
//! A notice is a connection without any data. It makes the keeper ask the server at once, because
//! only the server's answer counts, and stays open until the server has answered.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Uid, getuid};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::rules::instant::Instant;
use crate::rules::lock::Token;

/// How many notices are accepted at a time, and how many the kernel queues.
const BACKLOG: i32 = 8;

/// The pause after accepting notices, so that a flood of them costs little.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a release waits for the keeper, which needs one answer from the server.
const PATIENCE: Duration = Duration::from_secs(1);

/// An abstract socket, which exists until the keeper ends. Any process on the host can connect to
/// it and see its name, which does not reveal the token.
pub(crate) struct Notice {
    socket: Socket,
    /// Connections that wait for the server's answer.
    waiting: Vec<Socket>,
    next_check: Instant,
}

impl Notice {
    pub(crate) fn await_for(token: &Token) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&address(token)?)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, waiting: Vec::new(), next_check: Instant::now() })
    }

    /// Notifies the keeper of this hold, if it runs on this host, and waits until the server has
    /// answered the keeper.
    pub(crate) fn give(token: &Token) {
        // If this fails, the keeper only learns of the release later.
        let _ = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
            // This also limits the wait for a full backlog.
            socket.set_write_timeout(Some(PATIENCE))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect(&address(token)?)?;
            socket.recv(&mut [MaybeUninit::uninit()])
        });
    }

    /// When to check again; `None` if that is when the next notice arrives.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        (now < self.next_check).then_some(self.next_check)
    }

    /// Whether a notice has arrived since the last check, from a user who may also kill the keeper.
    pub(crate) fn is_given(&mut self, now: Instant) -> bool {
        if now < self.next_check {
            return false;
        }
        let before = self.waiting.len();
        for _ in 0..BACKLOG {
            let peer = match self.socket.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                accepted => accepted,
            };
            self.next_check = now + PAUSE;
            // For example, no descriptor is left.
            let Ok((peer, _)) = peer else { break };
            if self.waiting.len() < 2 * BACKLOG as usize && may_notify(&peer) {
                self.waiting.push(peer);
            }
        }
        self.waiting.len() > before
    }

    /// Ends the wait of the releases that gave notice.
    pub(crate) fn answer(&mut self) {
        self.waiting.clear();
    }
}

impl AsFd for Notice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The kernel's rule for who may send a signal.
fn may_notify(peer: &Socket) -> bool {
    user_of(peer).is_ok_and(|user| user == getuid() || user.is_root())
}

/// The user at the other end of the connection.
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

/// A name that begins with a zero byte is not in the file system.
fn address(token: &Token) -> io::Result<SockAddr> {
    let mut hasher = DefaultHasher::new();
    token.as_str().hash(&mut hasher);
    SockAddr::unix(format!("\0rlock-keeper-{:016x}", hasher.finish()))
}
