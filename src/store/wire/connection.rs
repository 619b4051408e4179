//! One connection: commands out, replies in, with one deadline for the whole exchange.
//!
//! The redis crate packs the commands. Its own connection is not used: a signal ends its reads, and
//! it does not distinguish "not sent" from "no reply".

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use redis::{Cmd, Value};

use super::dial::dial;
use super::endpoint::Endpoint;
use super::resp::{Reader, Unusable};
use super::stream::Stream;
use super::tls::{Tls, reason};
use crate::report::plain;
use crate::rules::{Delivery, Failure, Instant, UserMessage, show};
use crate::store::Interrupt;
use crate::system::poll::{Want, Woken, wait};

/// How much the replies to one pipeline may take, in bytes: both on the wire and in memory. Even
/// lists of locks are far smaller.
const LARGEST_REPLY: usize = 64 * 1024 * 1024;

/// A connection to one server. It can be used again after a timeout or an interrupt, because it
/// knows what it has not sent and which replies it has not read. After any other failure it must be
/// dropped.
pub(in crate::store) struct Connection {
    stream: Stream,
    reader: Reader,
    peer: String,
    /// The part of an earlier pipeline that could not be sent in time.
    unsent: Vec<u8>,
    /// How many replies have not been read yet.
    pending: usize,
    /// Whether the server may speak TLS although the URL has no TLS: it has not replied yet.
    may_speak_tls: bool,
}

/// What ends a wait for a server.
#[derive(Clone, Copy)]
pub(in crate::store) struct Limit<'a> {
    timeout: Duration,
    until: Instant,
    interrupt: Interrupt<'a>,
}

impl<'a> Limit<'a> {
    /// From now on.
    pub(in crate::store) fn new(timeout: Duration, interrupt: Interrupt<'a>) -> Self {
        Self { timeout, until: Instant::now() + timeout, interrupt }
    }

    /// Fails if the time is over or the interrupt has come. A server that keeps sending never makes
    /// an operation wait, so nothing else would notice.
    fn check(&self) -> Result<(), Broken> {
        let now = Instant::now();
        if now >= self.until {
            return Err(Broken::TimedOut);
        }
        match wait(None, self.interrupt, now).map_err(Broken::Io)? {
            Woken::Interrupted => Err(Broken::Interrupted),
            Woken::Ready | Woken::TimedOut => Ok(()),
        }
    }

    /// The same limit, after the server has blocked for this long.
    pub(in crate::store) fn after(self, time: Duration) -> Self {
        Self { until: self.until + time, ..self }
    }
}

/// Why an exchange failed.
enum Broken {
    TimedOut,
    Closed,
    Interrupted,
    TooLarge,
    /// TLS does not accept the server.
    Distrusted(io::Error),
    Io(io::Error),
}

impl Connection {
    /// Connects within `timeout`. A TLS handshake takes place with the first exchange.
    pub(in crate::store) fn open(
        endpoint: &Endpoint,
        tls: Option<&Tls>,
        timeout: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Self, Failure> {
        let socket = dial(endpoint, timeout, interrupt)?;
        let peer = endpoint.to_string();
        match Stream::new(socket, tls) {
            Ok(stream) => Ok(Self {
                stream,
                reader: Reader::default(),
                peer,
                unsent: Vec::new(),
                pending: 0,
                may_speak_tls: tls.is_none() && matches!(endpoint, Endpoint::Tcp { .. }),
            }),
            Err(error) => Err(Failure::Misconfigured {
                fault: UserMessage::new(format!("cannot use TLS with {peer}: {error}")),
                executed: false,
            }),
        }
    }

    /// Sends the commands in one pipeline and reads one reply to each within the limit. Replies to
    /// earlier pipelines that were not read in time come first and are dropped. An error reply is a
    /// reply (`Value::ServerError`), not a failure.
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
        self.write(bytes, limit).map_err(|broken| self.failure(broken, limit.timeout))?;
        let mut replies = Vec::with_capacity(commands.len());
        let mut rest = LARGEST_REPLY;
        while self.pending > 0 {
            let reply = match self.reader.reply(&mut rest) {
                Ok(reply) => reply,
                Err(Unusable::Malformed) => return Err(self.not_redis()),
                Err(Unusable::TooLarge) => {
                    return Err(self.failure(Broken::TooLarge, limit.timeout));
                }
            };
            let Some(reply) = reply else {
                let read = self.read(limit, &mut rest);
                read.map_err(|broken| self.failure(broken, limit.timeout))?;
                continue;
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
    fn write(&mut self, mut bytes: Vec<u8>, limit: Limit<'_>) -> Result<(), Broken> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) => {
                    let again = retry(&self.stream, error, Want::Write, limit);
                    if let Err(broken) = again {
                        self.unsent = bytes.split_off(sent);
                        return Err(broken);
                    }
                }
            }
        }
        while let Err(error) = self.stream.flush() {
            retry(&self.stream, error, Want::Write, limit)?;
        }
        Ok(())
    }

    /// Reads some bytes of the replies. Reduces `rest` by what came from the socket for that.
    fn read(&mut self, limit: Limit<'_>, rest: &mut usize) -> Result<(), Broken> {
        loop {
            // Not before the first bytes: if they have arrived, they are read even after an
            // interrupt.
            if *rest < LARGEST_REPLY || Instant::now() >= limit.until {
                limit.check()?;
            }
            let before = self.stream.received();
            let read = self.reader.read_from(&mut self.stream);
            let received = self.stream.received() - before;
            *rest = rest.checked_sub(received).ok_or(Broken::TooLarge)?;
            match read {
                Ok(0) => return Err(Broken::Closed),
                Ok(_) => return Ok(()),
                Err(error) => retry(&self.stream, error, Want::Read, limit)?,
            }
        }
    }

    fn remedy(&self, remedy: &str) -> String {
        match self.may_speak_tls {
            true => format!("{remedy}, and use rediss:// if it uses TLS"),
            false => remedy.to_owned(),
        }
    }

    fn failure(&self, broken: Broken, timeout: Duration) -> Failure {
        let peer = &self.peer;
        let (fault, delivery) = match broken {
            Broken::Interrupted => return Failure::Interrupted { sent: true },
            Broken::TooLarge => {
                let most = LARGEST_REPLY / (1024 * 1024);
                let fault = UserMessage::new(format!("reply from {peer} exceeds {most} MiB"));
                let remedy = "find the large key with redis-cli --memkeys";
                return Failure::TooLarge(fault.with_remedy(remedy));
            }
            Broken::Distrusted(error) => {
                let fault = reason(&error);
                return Failure::misconfigured(
                    fault.reworded(|why| format!("TLS with {peer} failed: {why}")),
                );
            }
            Broken::TimedOut if self.stream.is_handshaking() => {
                let timeout = show(timeout);
                let fault = UserMessage::new(format!("{peer} did not start TLS within {timeout}"));
                (fault.with_remedy("check that it uses TLS"), Delivery::NotSent)
            }
            Broken::TimedOut => {
                let fault =
                    UserMessage::new(format!("{peer} did not answer within {}", show(timeout)));
                (fault.with_remedy("check the server and the network"), Delivery::Pending)
            }
            Broken::Closed => {
                let fault = UserMessage::new(format!("{peer} closed the connection"));
                (fault.with_remedy(self.remedy("check the log of the server")), Delivery::Lost)
            }
            Broken::Io(error) => {
                let fault =
                    UserMessage::new(format!("connection to {peer} failed: {}", plain(&error)));
                (fault.with_remedy(self.remedy("check the server and the network")), Delivery::Lost)
            }
        };
        Failure::Unreachable { fault, delivery, others_answer: false }
    }

    /// For bytes that are not RESP2: the server is not Redis or Valkey.
    fn not_redis(&self) -> Failure {
        let fault = UserMessage::new(format!("{} is not a Redis or Valkey server", self.peer));
        Failure::misconfigured(fault.with_remedy("check the host and the port"))
    }
}

/// Waits until an operation that returned `error` is worth another try.
fn retry(stream: &Stream, error: io::Error, want: Want, limit: Limit<'_>) -> Result<(), Broken> {
    match error.kind() {
        io::ErrorKind::Interrupted => return limit.check(),
        io::ErrorKind::WouldBlock => {}
        io::ErrorKind::UnexpectedEof => return Err(Broken::Closed),
        // This is how rustls reports a certificate or a message that it does not accept.
        io::ErrorKind::InvalidData => return Err(Broken::Distrusted(error)),
        _ => return Err(Broken::Io(error)),
    }
    let socket = (stream.as_fd(), stream.waits_for(want));
    match wait(Some(socket), limit.interrupt, limit.until).map_err(Broken::Io)? {
        Woken::Ready => Ok(()),
        Woken::Interrupted => Err(Broken::Interrupted),
        Woken::TimedOut => Err(Broken::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use redis::cmd;

    use super::*;
    use crate::system::wakeup::Wakeup;

    #[test]
    fn a_server_that_keeps_sending_does_not_hide_an_interrupt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let interrupt = Wakeup::new().unwrap();
        let interrupter = interrupt.clone();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let many = b":1\r\n".repeat(100_000);
            let _ = client.write_all(b"*9000000000000000\r\n");
            // From here on, the socket always has more.
            let _ = client.write_all(&many);
            interrupter.wake();
            while client.write_all(&many).is_ok() {}
        });
        let (endpoint, minute) = (
            Endpoint::Tcp { host: "127.0.0.1".parse().ok().unwrap(), port },
            Duration::from_secs(60),
        );
        let mut connection = Connection::open(&endpoint, None, minute, None).ok().unwrap();
        let ended = Some(interrupt.as_fd().into());
        let received = connection.exchange(&[cmd("PING")], Limit::new(minute, ended));
        assert!(matches!(received, Err(Failure::Interrupted { sent: true })), "{received:?}");
    }
}
