//! Connecting, within a time and until interrupted: name resolution and all.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use super::address::Endpoint;
use crate::duration::show;
use crate::report::plain;
use crate::store::{Failure, Fate, Interrupt};
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};

/// How often a full backlog of a unix socket, which nothing announces the end of, is tried again.
const BACKLOG_RETRY: Duration = Duration::from_millis(10);

/// Why there is no connection; nothing has been sent.
enum DialError {
    Failed(String),
    Interrupted,
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        Self::Failed(plain(&error))
    }
}

/// A connected, non-blocking socket.
pub(in crate::store) fn dial(
    endpoint: &Endpoint,
    patience: Duration,
    interrupt: Interrupt<'_>,
) -> Result<Socket, Failure> {
    let until = Instant::now() + patience;
    let dialled = match endpoint {
        Endpoint::Unix(path) => SockAddr::unix(path)
            .map_err(DialError::from)
            .and_then(|address| connect(Domain::UNIX, &address, until, interrupt)),
        Endpoint::Tcp { host, port } => resolve(host, *port, until, interrupt)
            .and_then(|addresses| connect_any(&addresses, until, interrupt)),
    };
    dialled.map_err(|error| match error {
        DialError::Interrupted => Failure::Interrupted { sent: false },
        DialError::Failed(what) => Failure::Unreachable {
            what: if until.since(Instant::now()).is_zero() {
                format!("cannot connect to {endpoint}: no answer within {}", show(patience))
            } else {
                format!("cannot connect to {endpoint}: {what}; is a server running there?")
            },
            fate: Fate::NotSent,
        },
    })
}

/// The addresses of a host, if they are found in time.
pub(in crate::store) fn addresses_of(host: &str, port: u16, patience: Duration) -> Vec<SocketAddr> {
    resolve(host, port, Instant::now() + patience, None).unwrap_or_default()
}

/// The addresses of a host. The resolver knows neither deadlines nor interrupts, so it gets a
/// thread of its own, which is left behind if it takes too long.
fn resolve(
    host: &str,
    port: u16,
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<Vec<SocketAddr>, DialError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (done, signal_done) = UnixStream::pair()?;
    let (sender, receiver) = mpsc::channel();
    let name = host.to_owned();
    std::thread::Builder::new().name("resolver".into()).spawn(move || {
        let resolved = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Nobody listens any more if this came too late.
        let _ = sender.send(resolved);
        drop(signal_done);
    })?;
    await_readiness(&done, Want::Read, until, interrupt)?;
    match receiver.try_recv() {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(_)) => Err(DialError::Failed(format!("no such host as {host}"))),
        Err(_) => Err(DialError::Failed("the host name was not resolved in time".into())),
    }
}

/// Tries each address in turn, and leaves each one its share of the time left.
fn connect_any(
    addresses: &[SocketAddr],
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<Socket, DialError> {
    let mut last = DialError::Failed("the host has no address".into());
    for (tried, &address) in addresses.iter().enumerate() {
        let now = Instant::now();
        let rest = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let share = now + until.since(now) / rest;
        let domain = Domain::for_address(address);
        match connect(domain, &address.into(), share, interrupt) {
            Ok(socket) => {
                outlive_silence(&socket)?;
                return Ok(socket);
            }
            Err(DialError::Interrupted) => return Err(DialError::Interrupted),
            Err(failed) => last = failed,
        }
    }
    Err(last)
}

fn connect(
    domain: Domain,
    address: &SockAddr,
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<Socket, DialError> {
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    loop {
        let Err(error) = socket.connect(address) else { return Ok(socket) };
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EINPROGRESS) => {
                await_readiness(&socket, Want::Write, until, interrupt)?;
                return match socket.take_error()? {
                    None => Ok(socket),
                    Some(error) => Err(error.into()),
                };
            }
            Some(Errno::EAGAIN) => {
                if until.since(Instant::now()).is_zero() {
                    return Err(error.into());
                }
                // Nothing to wait for but the interrupt and a little time.
                let soon = until.min(Instant::now() + BACKLOG_RETRY);
                interrupted_before(soon, interrupt)?;
            }
            _ => return Err(error.into()),
        }
    }
}

/// A peer that is gone without a word (powered off, unplugged) ends a connection on which we wait
/// as well as one on which we have just written.
fn outlive_silence(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let every = Duration::from_secs(5);
    let keepalive = TcpKeepalive::new().with_time(3 * every).with_interval(every).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)
}

/// `Ok` when the descriptor is ready, an error when the time is over or the interrupt came first.
fn await_readiness(
    descriptor: &impl AsFd,
    want: Want,
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<(), DialError> {
    let descriptor = descriptor.as_fd();
    let [is_ready, interrupted] = match interrupt {
        Some(interrupt) => ready([(descriptor, want), (interrupt, Want::Read)], Some(until))?,
        None => [ready([(descriptor, want)], Some(until))?[0], false],
    };
    match (is_ready, interrupted) {
        (_, true) => Err(DialError::Interrupted),
        (true, false) => Ok(()),
        (false, false) => Err(DialError::Failed("no answer in time".into())),
    }
}

fn interrupted_before(until: Instant, interrupt: Interrupt<'_>) -> Result<(), DialError> {
    let interrupted = match interrupt {
        Some(interrupt) => ready([(interrupt, Want::Read)], Some(until))?[0],
        None => ready([], Some(until)).map(|[]| false)?,
    };
    if interrupted { Err(DialError::Interrupted) } else { Ok(()) }
}
