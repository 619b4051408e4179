//! A connected, non-blocking socket, plain or encrypted.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConnection, Error, PeerIncompatible};
use socket2::Socket;

use super::endpoint::Host;
use super::tls::Tls;
use crate::rules::UserMessage;
use crate::system::poll::Want;

/// Each read and write returns after one read from the socket at most, so that the caller can check
/// its limits before the next one. `Interrupted` means that TLS made progress and the operation has
/// to be repeated.
pub(super) struct Stream {
    socket: Socket,
    // Boxed because it is large and rarely used.
    tls: Option<Box<ClientConnection>>,
    /// How many bytes the socket has delivered. TLS can deliver many without any content.
    pub(super) received: usize,
}

impl Stream {
    /// With TLS for a host, the handshake takes place with the first read or write.
    pub(super) fn new(socket: Socket, tls: Option<(&Tls, &Host)>) -> Result<Self, UserMessage> {
        let connect = |(config, host): (&Tls, &Host)| {
            let host = host.as_str();
            let name = ServerName::try_from(host.to_owned()).map_err(|_| {
                UserMessage::new(format!("'{host}' is not a valid host name for TLS"))
                    .with_remedy("correct the host in the URL")
            })?;
            ClientConnection::new(Arc::clone(config), name)
                .map(Box::new)
                .map_err(|error| UserMessage::new(error.to_string()))
        };
        Ok(Self { socket, tls: tls.map(connect).transpose()?, received: 0 })
    }

    /// Whether a TLS handshake is not complete yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// What to wait for when an operation that needs `want` on a plain socket would block. TLS may
    /// need to read in order to write, and vice versa.
    pub(super) fn waits_for(&self, want: Want) -> Want {
        match &self.tls {
            None => want,
            Some(tls) if tls.wants_write() => Want::Write,
            Some(_) => Want::Read,
        }
    }
}

/// Sends what TLS has ready.
fn send(tls: &mut ClientConnection, socket: &mut Socket) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(socket)?;
    }
    Ok(())
}

/// Reads from the socket once and decrypts what arrived. Returns how many bytes that were.
fn receive(tls: &mut ClientConnection, socket: &mut Socket) -> io::Result<usize> {
    let count = tls.read_tls(socket)?;
    if let Err(error) = tls.process_new_packets() {
        // Tell the server why. The connection is dropped, whether it learns that or not.
        let _ = send(tls, socket);
        let is_first = tls.negotiated_cipher_suite().is_none();
        let error = match error {
            // Before it has chosen an algorithm: it supports none of them.
            Error::AlertReceived(AlertDescription::HandshakeFailure) if is_first => {
                PeerIncompatible::NoSignatureSchemesInCommon.into()
            }
            error => error,
        };
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    if count == 0 && tls.is_handshaking() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(count)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { socket, tls, received } = self;
        let Some(tls) = tls else {
            let count = socket.read(buffer)?;
            *received += count;
            return Ok(count);
        };
        match tls.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        send(tls, socket)?;
        *received += receive(tls, socket)?;
        tls.reader().read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::Interrupted.into(),
            _ => error,
        })
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { socket, tls, received } = self;
        let Some(tls) = tls else { return socket.write(bytes) };
        send(tls, socket)?;
        if tls.is_handshaking() {
            *received += receive(tls, socket)?;
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = tls.writer().write(bytes)?;
        // These bytes are accepted now. If they cannot be sent, the next operation reports it.
        let _ = send(tls, socket);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Self { socket, tls, .. } = self;
        tls.as_mut().map_or(Ok(()), |tls| send(tls, socket))
    }
}
