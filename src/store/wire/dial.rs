//! Connecting with a timeout and an interrupt, name lookup and TLS handshake included.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use socket2::{SockAddr, Socket, TcpKeepalive, Type};

use super::endpoint::Endpoint;
use super::limit::Limit;
use super::peer::Peer;
use super::route::unconnected;
use super::stream::Stream;
use super::tls::{self, Tls};
use crate::rules::{Blame, Delivery, Failure, FailureKind, Instant, SystemCall, show};
use crate::store::denial;
use crate::system::poll::Want;

/// The pause between two attempts while the backlog of a Unix socket is full. The system does not
/// announce when it has room again.
const BACKLOG_RETRY: Duration = Duration::from_millis(10);

/// How long an address is tried alone before the next one is tried too, as RFC 8305 recommends.
const HEAD_START: Duration = Duration::from_millis(250);

/// What TLS needs: its configuration, and the host that the certificate must name.
type Greeting = (Tls, ServerName<'static>);

/// Connects within the limit, which includes the name lookup and the TLS handshake.
pub(super) fn dial(peer: &Peer, limit: Limit<'_>) -> Result<Stream, Failure> {
    let dialed = greeting(peer).and_then(|greeting| {
        let addresses = peer.route.addresses(&peer.endpoint, limit)?;
        race(peer, &addresses, greeting.as_ref(), limit)
    });
    dialed.map_err(|failure| {
        let failure = failure.once_served(peer.has_served());
        failure.reworded(|why| format!("cannot connect to {peer}: {why}"))
    })
}

/// The certificates of a connection that end sooner than this, and how long they remain valid.
pub(in crate::store) fn ending_certificates(
    peer: &Peer,
    limit: Limit<'_>,
    within: Duration,
) -> Vec<(&'static str, Duration)> {
    let (Some(files), Ok(stream)) = (peer.tls.as_ref(), dial(peer, limit)) else {
        return Vec::new();
    };
    files.ending(stream.certificates(), within)
}

/// The certificate must name the host of the URL, whatever its address.
fn greeting(peer: &Peer) -> Result<Option<Greeting>, Failure> {
    let (Some(files), Endpoint::Tcp { host, .. }) = (&peer.tls, &peer.endpoint) else {
        return Ok(None);
    };
    let host = host.as_str();
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        let what = format!("'{host}' is not a valid host name for TLS");
        Failure::misconfigured(what, "correct the host in the URL")
    });
    name.and_then(|name| Ok(Some((files.present()?, name))))
}

/// Connects to the first address that answers. Each is tried as soon as the one before has failed,
/// or has not answered for a while. No request is raced, because a server may execute one later.
fn race(
    peer: &Peer,
    addresses: &[SockAddr],
    greeting: Option<&Greeting>,
    limit: Limit<'_>,
) -> Result<Stream, Failure> {
    let mut next = Instant::now();
    // The last address gets half of the time.
    let share = limit.until.since(next) / 2 / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    let is_unix = matches!(peer.endpoint, Endpoint::Unix(_));
    let mut untried = addresses.iter();
    let mut attempts = Vec::new();
    let mut failure = None;
    loop {
        let now = Instant::now();
        let due = if next <= now { untried.next() } else { None };
        let begun = due
            .map(|address| begin(address, greeting).map_err(|error| (SystemCall::Socket, error)));
        if begun.is_some() {
            next = now + share.min(HEAD_START);
        }
        for attempt in mem::take(&mut attempts).into_iter().map(Ok).chain(begun) {
            let proceeded = attempt.and_then(|mut stream: Stream| match stream.proceed() {
                Ok(is_done) => Ok((is_done, stream)),
                Err(error) => Err((stream.call(), error)),
            });
            match proceeded {
                Ok((true, stream)) => return Ok(stream),
                Ok((false, stream)) => attempts.push(stream),
                Err((call, error)) => {
                    let failed = failed(peer, call, &error);
                    let is_worse = |known: &(Blame, _)| known.0 <= failed.0;
                    if failure.as_ref().is_none_or(is_worse) {
                        failure = Some(failed);
                    }
                    next = now;
                }
            }
        }
        let is_last = untried.as_slice().is_empty();
        if is_last && attempts.is_empty() {
            let none = || unconnected("host has no address", "check the host name");
            let failure = failure.map_or_else(none, |(_, failure)| failure);
            return Err(failure);
        }
        if now >= limit.until {
            let (what, remedy) = match attempts.iter().any(|stream| stream.is_connected) {
                true => ("TLS handshake", "check that it uses TLS"),
                false => ("answer", "check the server and the network"),
            };
            let silent = unconnected(format!("no {what} within {}", show(limit.timeout)), remedy);
            // Another address could not be asked.
            let failure = failure.filter(|(blame, _)| *blame == Blame::Host);
            return Err(failure.map_or(silent, |(_, failure)| failure));
        }
        let again = match is_last {
            _ if is_unix => now + BACKLOG_RETRY,
            false => next,
            true => limit.until,
        };
        // A Unix socket looks ready while the backlog is full.
        let waiting = attempts.iter().filter(|_| !is_unix);
        let wanted = waiting.map(|stream| (stream.as_fd(), stream.waits_for(Want::Read)));
        Limit { until: again.min(limit.until), ..limit }.ready(wanted, Delivery::NotExecuted)?;
    }
}

fn failed(peer: &Peer, call: SystemCall, error: &io::Error) -> (Blame, Failure) {
    match (error.kind(), &peer.endpoint) {
        (io::ErrorKind::InvalidData, _) => {
            let fault = tls::reason(error).reworded(|why| format!("TLS failed: {why}"));
            (Blame::Client, Failure::new(FailureKind::Misconfigured, fault))
        }
        // It has no other address.
        (_, Endpoint::Unix(path)) => (Blame::Client, denial::failure_at(path, call, error)),
        _ => denial::blamed(call, error),
    }
}

fn begin(address: &SockAddr, greeting: Option<&Greeting>) -> io::Result<Stream> {
    let socket = Socket::new(address.domain(), Type::STREAM.nonblocking(), None)?;
    if !address.is_unix() {
        detect_dead_peer(&socket)?;
    }
    let tls = greeting.map(|(tls, name)| ClientConnection::new(Arc::clone(tls), name.clone()));
    Ok(Stream::new(socket, address.clone(), tls.transpose().map_err(tls::io_error)?))
}

/// Makes the system detect a server that vanished without closing the connection (power loss,
/// network failure) within 30 seconds, even while rlock only waits.
fn detect_dead_peer(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let every = Duration::from_secs(5);
    let keepalive = TcpKeepalive::new().with_time(3 * every).with_interval(every).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)
}
