//! A connected, non-blocking socket, plain or encrypted.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, ClientConnection, Error, PeerIncompatible};
use socket2::{SockAddr, Socket};

use super::tls::io_error;
use crate::rules::SystemCall;
use crate::system::poll::Want;

/// See [`any_server_has_answered`].
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// Whether any server has sent anything to this process, be it a part of an error or of a TLS
/// handshake, or a lock file was there. Then a holder may exist, whatever fails later.
pub(crate) fn any_server_has_answered() -> bool {
    ANSWERED.load(Ordering::Relaxed)
}

/// Notes that a server has answered.
pub(in crate::store) fn note_answer() {
    ANSWERED.store(true, Ordering::Relaxed);
}

/// Each read and write returns after one read from the socket at most, so that the caller can check
/// its limits before the next one. `Interrupted` means that TLS made progress and the operation has
/// to be repeated.
pub(super) struct Stream {
    socket: Socket,
    pub(super) address: SockAddr,
    pub(super) is_connected: bool,
    // Boxed because it is large and rarely used.
    tls: Option<Box<ClientConnection>>,
    /// How many bytes the socket has delivered. TLS can deliver many without any content.
    pub(super) received: usize,
}

impl Stream {
    /// A socket that is not connected yet.
    pub(super) fn new(socket: Socket, address: SockAddr, tls: Option<ClientConnection>) -> Self {
        Self { socket, address, is_connected: false, tls: tls.map(Box::new), received: 0 }
    }

    /// Goes on to connect, and then with the TLS handshake, without blocking. Returns whether both
    /// are complete.
    pub(super) fn proceed(&mut self) -> io::Result<bool> {
        match self.step() {
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EAGAIN | Errno::EINPROGRESS | Errno::EALREADY) => Ok(false),
                _ => Err(error),
            },
            Ok(()) => Ok(self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())),
        }
    }

    fn step(&mut self) -> io::Result<()> {
        if !self.is_connected {
            self.socket.connect(&self.address)?;
            self.is_connected = true;
        }
        if let Some(tls) = self.tls.as_mut().filter(|tls| tls.is_handshaking()) {
            send(tls, &mut self.socket)?;
            receive(tls, &mut self.socket)?;
        }
        Ok(())
    }

    /// What it is doing before it is ready for requests.
    pub(super) fn call(&self) -> SystemCall {
        match () {
            () if self.is_connected => SystemCall::Exchange,
            () if self.address.is_unix() => SystemCall::ConnectUnix,
            () if self.address.is_ipv6() => SystemCall::ConnectTcp6,
            () => SystemCall::ConnectTcp4,
        }
    }

    /// What the server has presented with TLS, its own certificate first.
    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.as_ref().and_then(|tls| tls.peer_certificates()).unwrap_or_default()
    }

    /// What to wait for when an operation that needs `want` on a plain socket would block. TLS may
    /// need to read in order to write, and vice versa.
    pub(super) fn waits_for(&self, want: Want) -> Want {
        match &self.tls {
            _ if !self.is_connected => Want::Write,
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
    if count > 0 {
        note_answer();
    }
    if let Err(error) = tls.process_new_packets() {
        // Tell the server why. The connection is dropped, whether it learns that or not.
        let _ = send(tls, socket);
        let is_first = tls.negotiated_cipher_suite().is_none();
        return Err(io_error(match error {
            // Before it has chosen an algorithm: it supports none of them.
            Error::AlertReceived(AlertDescription::HandshakeFailure) if is_first => {
                PeerIncompatible::NoSignatureSchemesInCommon.into()
            }
            error => error,
        }));
    }
    if count == 0 && tls.is_handshaking() {
        let what = "server closed the connection";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
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
        let Self { socket, tls, received, .. } = self;
        let Some(tls) = tls else {
            let count = socket.read(buffer)?;
            if count > 0 {
                note_answer();
            }
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
        let Self { socket, tls, .. } = self;
        let Some(tls) = tls else { return socket.write(bytes) };
        send(tls, socket)?;
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
