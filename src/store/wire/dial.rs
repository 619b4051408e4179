//! Connecting with a timeout and an interrupt, name resolution included.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use super::endpoint::Endpoint;
use crate::report::plain;
use crate::rules::{Delivery, Failure, Instant, UserMessage, show};
use crate::store::Interrupt;
use crate::system::poll::{Want, Woken, wait};
use crate::system::thread;

/// The pause between two attempts while the backlog of a Unix socket is full. The system does not
/// announce when it has room again.
const BACKLOG_RETRY: Duration = Duration::from_millis(10);

/// Why there is no connection. Nothing has been sent.
enum DialError {
    Failed(UserMessage),
    TimedOut,
    Interrupted,
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        Self::Failed(
            UserMessage::new(plain(&error)).with_remedy("check that the server is running"),
        )
    }
}

/// Connects a non-blocking socket within `timeout`, which includes the name lookup.
pub(in crate::store) fn dial(
    endpoint: &Endpoint,
    timeout: Duration,
    interrupt: Interrupt<'_>,
) -> Result<Socket, Failure> {
    let until = Instant::now() + timeout;
    let dialled = match endpoint {
        Endpoint::Unix(path) => SockAddr::unix(path)
            .map_err(DialError::from)
            .and_then(|address| connect(Domain::UNIX, &address, until, interrupt)),
        Endpoint::Tcp { host, port } => resolve(host.as_str(), *port, until, interrupt)
            .and_then(|addresses| connect_any(&addresses, until, interrupt)),
    };
    let unreachable = |fault: UserMessage| {
        let fault = fault.reworded(|why| format!("cannot connect to {endpoint}: {why}"));
        Failure::Unreachable { fault, delivery: Delivery::NotSent, others_answer: false }
    };
    dialled.map_err(|error| match error {
        DialError::Interrupted => Failure::Interrupted { sent: false },
        DialError::TimedOut => unreachable(
            UserMessage::new(format!("no answer within {}", show(timeout)))
                .with_remedy("check the server and the network"),
        ),
        DialError::Failed(fault) => unreachable(fault),
    })
}

/// The addresses of a host; none if the lookup fails or takes longer than `timeout`.
pub(in crate::store) fn addresses_of(host: &str, port: u16, timeout: Duration) -> Vec<SocketAddr> {
    resolve(host, port, Instant::now() + timeout, None).unwrap_or_default()
}

/// The addresses of a host. The system's resolver has no timeout and cannot be interrupted, so it
/// runs on another thread, which is abandoned if it takes too long.
fn resolve(
    host: &str,
    port: u16,
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<Vec<SocketAddr>, DialError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    let resolving = thread::call("resolver", move || {
        (name.as_str(), port).to_socket_addrs().map(Iterator::collect)
    })?;
    if wait(Some((resolving.as_fd(), Want::Read)), interrupt, until)? == Woken::Interrupted {
        return Err(DialError::Interrupted);
    }
    let failed = match resolving.result() {
        Some(Ok(addresses)) => return Ok(addresses),
        Some(Err(error)) => {
            // The standard library puts this before what the system says.
            let why = plain(&error).replace("failed to lookup address information: ", "");
            UserMessage::new(format!("host name not resolved: {}", why.to_lowercase()))
                .with_remedy("check the host name and the DNS server")
        }
        None => {
            UserMessage::new("host name not resolved in time").with_remedy("check the DNS server")
        }
    };
    Err(DialError::Failed(failed))
}

/// Tries each address in turn, and divides the remaining time equally among those not yet tried.
fn connect_any(
    addresses: &[SocketAddr],
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<Socket, DialError> {
    let mut last = DialError::Failed(
        UserMessage::new("host has no address").with_remedy("check the host name"),
    );
    for (tried, &address) in addresses.iter().enumerate() {
        let now = Instant::now();
        let rest = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let share = now + until.since(now) / rest;
        let domain = Domain::for_address(address);
        match connect(domain, &address.into(), share, interrupt) {
            Ok(socket) => {
                detect_dead_peer(&socket)?;
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
                    return Err(DialError::TimedOut);
                }
                // The backlog of the Unix socket is full.
                let soon = until.min(Instant::now() + BACKLOG_RETRY);
                if wait(None, interrupt, soon)? == Woken::Interrupted {
                    return Err(DialError::Interrupted);
                }
            }
            _ => return Err(error.into()),
        }
    }
}

/// Makes the system detect a server that vanished without closing the connection (power loss,
/// network failure) within 30 seconds, even while rlock only waits.
fn detect_dead_peer(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let every = Duration::from_secs(5);
    let keepalive = TcpKeepalive::new().with_time(3 * every).with_interval(every).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)
}

/// Waits until the descriptor is ready. An error means a timeout or an interrupt.
fn await_readiness(
    descriptor: &impl AsFd,
    want: Want,
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<(), DialError> {
    match wait(Some((descriptor.as_fd(), want)), interrupt, until)? {
        Woken::Ready => Ok(()),
        Woken::Interrupted => Err(DialError::Interrupted),
        Woken::TimedOut => Err(DialError::TimedOut),
    }
}
