//! Connecting with a timeout and an interrupt, name resolution included.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use super::endpoint::Endpoint;
use super::limit::Limit;
use crate::report::plain;
use crate::rules::{Delivery, Failure, Instant, UserMessage, show};
use crate::system::poll::Want;
use crate::system::thread;

/// The pause between two attempts while the backlog of a Unix socket is full. The system does not
/// announce when it has room again.
const BACKLOG_RETRY: Duration = Duration::from_millis(10);

/// Connects a non-blocking socket within the limit, which includes the name lookup.
pub(super) fn dial(endpoint: &Endpoint, limit: Limit<'_>) -> Result<Socket, Failure> {
    let dialled = match endpoint {
        Endpoint::Unix(path) => SockAddr::unix(path)
            .map_err(unreachable)
            .and_then(|address| connect(Domain::UNIX, &address, limit)),
        Endpoint::Tcp { host, port } => resolve(host.as_str(), *port, limit)
            .and_then(|addresses| connect_any(&addresses, limit)),
    };
    let reworded = |why: &str| format!("cannot connect to {endpoint}: {why}");
    dialled.map_err(|failure| failure.reworded(reworded))
}

/// Nothing has been sent.
fn unconnected(problem: impl Into<String>, remedy: &str) -> Failure {
    Failure::unreachable(UserMessage::new(problem).with_remedy(remedy), Delivery::NotSent)
}

fn unreachable(error: io::Error) -> Failure {
    unconnected(plain(&error), "check that the server is running")
}

/// The addresses of a host; none if the lookup fails or takes longer than `timeout`.
pub(in crate::store) fn addresses_of(host: &str, port: u16, timeout: Duration) -> Vec<SocketAddr> {
    resolve(host, port, Limit::new(timeout, None)).unwrap_or_default()
}

/// The addresses of a host. The system's resolver has no timeout and cannot be interrupted, so it
/// runs on another thread, which is abandoned if it takes too long.
fn resolve(host: &str, port: u16, limit: Limit<'_>) -> Result<Vec<SocketAddr>, Failure> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    let look_up = move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
    let resolving = thread::call("resolver", look_up).map_err(unreachable)?;
    limit.ready(Some((resolving.as_fd(), Want::Read)), false)?;
    match resolving.next() {
        Some(Ok(addresses)) => Ok(addresses),
        Some(Err(error)) => {
            // The standard library puts this before what the system says.
            let why = plain(&error).replace("failed to lookup address information: ", "");
            let what = format!("host name not resolved: {}", why.to_lowercase());
            Err(unconnected(what, "check the host name and the DNS server"))
        }
        None => Err(unconnected("host name not resolved in time", "check the DNS server")),
    }
}

/// Tries each address in turn, and divides the remaining time equally among those not yet tried.
fn connect_any(addresses: &[SocketAddr], limit: Limit<'_>) -> Result<Socket, Failure> {
    let mut last = unconnected("host has no address", "check the host name");
    for (tried, &address) in addresses.iter().enumerate() {
        let now = Instant::now();
        let rest = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let share = Limit { until: now + limit.until.since(now) / rest, ..limit };
        match connect(Domain::for_address(address), &address.into(), share) {
            Ok(socket) => {
                detect_dead_peer(&socket).map_err(unreachable)?;
                return Ok(socket);
            }
            Err(interrupted @ Failure::Interrupted { .. }) => return Err(interrupted),
            Err(failed) => last = failed,
        }
    }
    Err(last)
}

fn connect(domain: Domain, address: &SockAddr, limit: Limit<'_>) -> Result<Socket, Failure> {
    let timed_out = || {
        let what = format!("no answer within {}", show(limit.timeout));
        Err(unconnected(what, "check the server and the network"))
    };
    let socket = Socket::new(domain, Type::STREAM, None).map_err(unreachable)?;
    socket.set_nonblocking(true).map_err(unreachable)?;
    loop {
        let Err(error) = socket.connect(address) else { return Ok(socket) };
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EINPROGRESS) => {
                if !limit.ready(Some((socket.as_fd(), Want::Write)), false)? {
                    return timed_out();
                }
                return match socket.take_error() {
                    Ok(None) => Ok(socket),
                    Ok(Some(error)) | Err(error) => Err(unreachable(error)),
                };
            }
            // The backlog of the Unix socket is full.
            Some(Errno::EAGAIN) => {
                if limit.until.since(Instant::now()).is_zero() {
                    return timed_out();
                }
                let soon = limit.until.min(Instant::now() + BACKLOG_RETRY);
                Limit { until: soon, ..limit }.ready(None, false)?;
            }
            _ => return Err(unreachable(error)),
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
