//! A release wakes the keeper of its hold, if that runs on the same host. Otherwise, if the server
//! froze, the keeper would stop a script that has already released its lock.
//!
//! A signal wakes it, so the kernel decides who may do that. It only makes the keeper ask the server.
//! The release finds the keeper by a socket through which nothing is sent. Its abstract address does
//! not reveal the token, and nobody can take it first without the token.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sha1_smol::Sha1;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::rules::{Instant, Token};
use crate::system::poll::{Want, is_ready, ready};

/// How long a release waits for the keeper to end, which needs one answer from the server.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// A socket, and the address of the keeper of this hold. If other users have filled its queue, a
/// connection must not wait for room.
fn socket(token: &Token) -> io::Result<(Socket, SockAddr)> {
    let address = format!("\0rlock-{}", Sha1::from(token.as_str()).digest());
    Ok((Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?, SockAddr::unix(address)?))
}

/// Lets a release find this process, which keeps the hold, for as long as the result exists.
pub(crate) fn listen(token: &Token) -> io::Result<Socket> {
    let (socket, address) = socket(token)?;
    socket.bind(&address)?;
    socket.listen(128).map(|()| socket)
}

/// Makes the keeper of a released hold ask the server, and waits until it has ended. If there is no
/// such keeper on this host, or it belongs to another user, it learns of the release at its next
/// renewal.
pub(crate) fn wake(token: &Token) -> Option<()> {
    let (socket, address) = socket(token).ok()?;
    socket.connect(&address).ok()?;
    let peer = getsockopt(&socket, PeerCredentials).ok()?;
    let keeper = pidfd_open(Pid::from_raw(peer.pid())?, PidfdFlags::empty()).ok()?;
    // If it had ended before that, its ID might have been reused, but the connection would be over.
    if peer.uid() == geteuid().as_raw() && !is_ready(socket.as_fd(), Want::Read) {
        pidfd_send_signal(&keeper, Signal::USR1).ok()?;
        ready([(keeper.as_fd(), Want::Read)], Some(Instant::now() + ENDS_WITHIN)).ok()?;
    }
    Some(())
}
