//! One connection: commands out, replies in, with one deadline for the whole exchange.
//!
//! The redis crate packs the commands. Its own connection is not used: a signal ends its reads, and
//! it does not distinguish "not sent" from "no reply".

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use redis::{Cmd, Value};
use socket2::SockAddr;

use super::dial::dial;
use super::limit::Limit;
use super::peer::Peer;
use super::resp::{Reader, Unusable};
use super::stream::Stream;
use super::tls::reason;
use crate::rules::{Blame, Delivery, Failure, FailureKind, Instant, SystemCall, UserMessage, show};
use crate::store::denial;
use crate::system::poll::Want;

/// How much the replies to one pipeline may take, in bytes: both on the wire and in memory. A page of
/// a lock is far smaller.
const LARGEST_REPLY: usize = 4 * 1024 * 1024;

/// A connection to one server. It can be used again after a timeout or an interrupt, because it
/// knows what it has not sent and which replies it has not read. After any other failure it must be
/// dropped.
pub(in crate::store) struct Connection {
    stream: Stream,
    reader: Reader,
    peer: Peer,
    /// The part of an earlier pipeline that could not be sent in time.
    unsent: Vec<u8>,
    /// How many replies have not been read yet.
    pending: usize,
    /// Whether the server may speak TLS although the URL has no TLS: it has not replied yet.
    may_speak_tls: bool,
}

impl Connection {
    /// Connects within the limit.
    pub(in crate::store) fn open(peer: &Peer, limit: Limit<'_>) -> Result<Self, Failure> {
        let stream = dial(peer, limit)?;
        Ok(Self {
            may_speak_tls: peer.tls.is_none() && !stream.address.is_unix(),
            stream,
            reader: Reader::default(),
            peer: peer.clone(),
            unsent: Vec::new(),
            pending: 0,
        })
    }

    /// The address of the server that it leads to.
    pub(in crate::store) fn address(&self) -> &SockAddr {
        &self.stream.address
    }

    /// Whether the endpoint leads elsewhere by now, as far as is known, so that the next request
    /// needs another connection. False while replies are missing: what undoes a request follows it.
    pub(in crate::store) fn is_left(&self) -> bool {
        self.pending == 0 && self.peer.route.has_left(&self.peer.endpoint, self.address())
    }

    /// Sends the commands in one pipeline and reads one reply to each within the limit. Replies to
    /// earlier pipelines that were not read in time come first and are dropped. An error reply is a
    /// reply (`Value::ServerError`), not a failure. If the server closes the connection after one, it
    /// is the reply to the commands that follow, too.
    pub(in crate::store) fn exchange(
        &mut self,
        commands: &[Cmd],
        limit: Limit<'_>,
    ) -> Result<Vec<Value>, Failure> {
        let mut bytes = std::mem::take(&mut self.unsent);
        for command in commands {
            command.write_packed_command(&mut bytes);
        }
        self.pending += commands.len();
        if let Err(failure) = self.write(bytes, limit) {
            // After a failure of TLS or of this host, nothing is there to read.
            let closed_by_server = failure.is_lost() && failure.is_unreachable();
            if !closed_by_server {
                return Err(failure);
            }
            // Why the server has closed it may be there to read.
        }
        let mut replies = Vec::with_capacity(commands.len());
        let mut rest = LARGEST_REPLY;
        while self.pending > 0 {
            let reply = match self.reader.reply(&mut rest) {
                Ok(reply) => reply,
                Err(Unusable::Malformed) => return Err(self.not_redis()),
                Err(Unusable::TooLarge) => return Err(self.too_large()),
            };
            let Some(reply) = reply else {
                match (self.read(limit, &mut rest), replies.last()) {
                    (Ok(()), _) => continue,
                    // A server that has too many clients replies once, and closes the connection.
                    (Err(failure), Some(error @ Value::ServerError(_))) if failure.is_lost() => {
                        self.pending = 0;
                        replies.resize(commands.len(), error.clone());
                        break;
                    }
                    (Err(failure), _) => return Err(failure),
                }
            };
            if self.pending <= commands.len() {
                replies.push(reply);
            }
            self.pending -= 1;
            self.may_speak_tls = false;
        }
        Ok(replies)
    }

    /// Whether the server has closed the connection. A server sends nothing unasked, so anything
    /// else than silence makes an idle connection useless. False while replies are missing.
    pub(in crate::store) fn is_closed(&mut self) -> bool {
        let is_silent = |error: io::Error| {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        };
        self.pending == 0 && !self.stream.read(&mut [0]).is_err_and(is_silent)
    }

    /// Whether replies have not been read yet.
    pub(in crate::store) fn has_pending(&self) -> bool {
        self.pending > 0
    }

    /// Sends bytes. What cannot be sent in time goes out ahead of the next pipeline, so that no
    /// command is truncated.
    fn write(&mut self, mut bytes: Vec<u8>, limit: Limit<'_>) -> Result<(), Failure> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) => {
                    if let Err(failure) = self.await_retry(error, Want::Write, limit) {
                        self.unsent = bytes.split_off(sent);
                        return Err(failure);
                    }
                }
            }
        }
        while let Err(error) = self.stream.flush() {
            self.await_retry(error, Want::Write, limit)?;
        }
        Ok(())
    }

    /// Reads some bytes of the replies. Reduces `rest` by what came from the socket for that.
    fn read(&mut self, limit: Limit<'_>, rest: &mut usize) -> Result<(), Failure> {
        loop {
            // Not before the first bytes: if they have arrived, they are read even after an interrupt,
            // and even if rlock was not running when the time was over.
            if *rest < LARGEST_REPLY {
                self.check(limit)?;
            }
            let before = self.stream.received;
            let read = self.reader.read_from(&mut self.stream);
            let received = self.stream.received - before;
            *rest = rest.checked_sub(received).ok_or_else(|| self.too_large())?;
            match read {
                Ok(0) => return Err(self.closed()),
                Ok(_) => return Ok(()),
                Err(error) => self.await_retry(error, Want::Read, limit)?,
            }
        }
    }

    /// Waits until an operation that returned `error` is worth another try.
    fn await_retry(&self, error: io::Error, want: Want, limit: Limit<'_>) -> Result<(), Failure> {
        match error.kind() {
            io::ErrorKind::Interrupted => return self.check(limit),
            io::ErrorKind::WouldBlock => {}
            io::ErrorKind::UnexpectedEof => return Err(self.closed()),
            // This is how rustls reports a certificate or a message that it does not accept.
            io::ErrorKind::InvalidData => {
                let peer = &self.peer;
                let fault = reason(&error).reworded(|why| format!("TLS with {peer} failed: {why}"));
                // A server that does not accept the client has read no command of it.
                return Err(peer.rejected(fault, Delivery::NotExecuted));
            }
            _ => {
                let (blame, failure) = denial::blamed(SystemCall::Exchange, &error);
                let failure =
                    failure.reworded(|why| format!("connection to {} failed: {why}", self.peer));
                return Err(match blame {
                    Blame::Server => self.lost(failure.fault),
                    Blame::Client => self.peer.rejected(failure.fault, Delivery::Lost),
                    _ => Failure { delivery: Delivery::Lost, ..failure },
                });
            }
        }
        let socket = (self.stream.as_fd(), self.stream.waits_for(want));
        if limit.ready([socket], Delivery::Pending)? { Ok(()) } else { Err(self.timed_out(limit)) }
    }

    /// Fails if the time is over or the interrupt has come. A server that keeps sending never makes
    /// an operation wait, so nothing else would notice.
    fn check(&self, limit: Limit<'_>) -> Result<(), Failure> {
        let now = Instant::now();
        if now >= limit.until {
            return Err(self.timed_out(limit));
        }
        Limit { until: now, ..limit }.ready(None, Delivery::Pending).map(|_| ())
    }

    fn timed_out(&self, limit: Limit<'_>) -> Failure {
        let what = format!("{} did not answer within {}", self.peer, show(limit.timeout));
        let fault = UserMessage::new(what).with_remedy("check the server and the network");
        Failure::unreachable(fault, Delivery::Pending)
    }

    fn closed(&self) -> Failure {
        let fault = UserMessage::new(format!("{} closed the connection", self.peer));
        self.lost(fault.with_remedy("check the log of the server"))
    }

    fn lost(&self, fault: UserMessage) -> Failure {
        let hint = if self.may_speak_tls { ", and use rediss:// if it uses TLS" } else { "" };
        let remedy = format!("{}{hint}", fault.remedy().unwrap_or_default());
        Failure::unreachable(fault.with_remedy(remedy), Delivery::Lost)
    }

    fn too_large(&self) -> Failure {
        let most = LARGEST_REPLY / (1024 * 1024);
        let fault = UserMessage::new(format!("reply from {} exceeds {most} MiB", self.peer));
        let fault = fault.with_remedy("find the large key with redis-cli --memkeys");
        Failure::new(FailureKind::TooLarge, fault)
    }

    /// For bytes that are not RESP2: the server is not Redis or Valkey.
    fn not_redis(&self) -> Failure {
        let what = format!("{} is not a Redis or Valkey server", self.peer);
        Failure::misconfigured(what, "check the host and the port")
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use redis::cmd;

    use super::*;
    use crate::store::NEVER;
    use crate::system::wakeup::Wakeup;

    #[test]
    fn a_server_that_keeps_sending_does_not_hide_an_interrupt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let interrupt = Wakeup::new().unwrap();
        let interrupter = interrupt.clone();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            // More than one read takes, but far less than is too large.
            let many = b":1\r\n".repeat(10_000);
            let _ = client.write_all(b"*9000000000000000\r\n");
            // From here on, the socket always has more.
            let _ = client.write_all(&many);
            interrupter.wake();
            while client.write_all(&many).is_ok() {}
        });
        let minute = Duration::from_secs(60);
        let peer = Peer::parse(&format!("redis://127.0.0.1:{port}")).unwrap();
        let mut connection =
            Connection::open(&peer, Limit::of_attempt(minute, NEVER)).ok().unwrap();
        let ended = NEVER.or(interrupt.as_fd());
        let received = connection.exchange(&[cmd("PING")], Limit::of_attempt(minute, ended));
        assert_eq!(received, Err(Failure::interrupted(Delivery::Pending)));
    }
}
