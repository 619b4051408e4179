//! How a keeper hears on its own host that the script has released the lock: from the server it might
//! hear too late, or not at all.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::lock::Token;

/// A socket without a file, which ends with the keeper. Everybody can see its name and send to it,
/// so that only the token itself is a notice, and the name does not tell it.
pub(crate) struct Notice {
    socket: UnixDatagram,
    token: Token,
}

impl Notice {
    pub(crate) fn await_for(token: &Token) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&address(token)?)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, token: token.clone() })
    }

    /// Tells the keeper of this hold, if there is one on this host.
    pub(crate) fn give(token: &Token) {
        let socket = UnixDatagram::unbound();
        let _ = socket.and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to_addr(token.as_str().as_bytes(), &address(token)?)
        });
    }

    /// Has it been given?
    pub(crate) fn is_given(&self) -> bool {
        let mut said = [0; 256];
        while let Ok(length) = self.socket.recv(&mut said) {
            if said.get(..length) == Some(self.token.as_str().as_bytes()) {
                return true;
            }
        }
        false
    }
}

impl AsFd for Notice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn address(token: &Token) -> io::Result<SocketAddr> {
    let mut hasher = DefaultHasher::new();
    token.as_str().hash(&mut hasher);
    SocketAddr::from_abstract_name(format!("rlock-keeper-{:016x}", hasher.finish()))
}
