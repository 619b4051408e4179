//! The requests that rlock sends to a server, recorded from the binary. A load repeats them for
//! other locks and tokens, faster than processes can be started.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use redis::{Cmd, Parser, Value};

use crate::support::{self, Finished, Running, Server};

/// The lock of the recording. Other locks have names of the same length.
pub(crate) const NAME: &str = "deploy:job-000000";

/// The name of the lock with this number.
pub(crate) fn name(number: usize) -> String {
    format!("deploy:job-{number:06}")
}

/// A token of the same form as those of rlock.
pub(crate) fn token(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
}

/// The requests of one client, in the order in which it sent them.
pub(crate) struct Recording {
    token: String,
    requests: Vec<Vec<u8>>,
}

impl Recording {
    /// Records an exec that holds the lock for long enough to renew it once, at the default TTL:
    /// acquire, renew, release.
    pub(crate) fn of_holder(server: &Server) -> [Request; 3] {
        Self::of_exec(server, &[], "sleep 11").requests()
    }

    /// Records an exec that shares the lock: acquire, release.
    pub(crate) fn of_shared_holder(server: &Server) -> [Request; 2] {
        Self::of_exec(server, &["--shared"], "").requests()
    }

    /// Records an exec that waits: join the queue, sleep, claim the lock, release.
    pub(crate) fn of_waiter(server: &Server) -> [Request; 4] {
        let holder = support::holder(server, &[], NAME);
        let wait = |url: &str| {
            let mut waiter = Running::start(&mut exec(url, &[], ""));
            waiter.told("waiting at position");
            holder.finish();
            let token = waiter.line();
            assert_eq!(waiter.finish().code(), 0);
            token
        };
        Self::of(server, wait).requests()
    }

    fn of_exec(server: &Server, options: &[&str], work: &str) -> Self {
        Self::of(server, |url| support::run(&mut exec(url, options, work)).out())
    }

    /// Records `client`, which uses a single connection and returns its token.
    fn of(server: &Server, client: impl FnOnce(&str) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("redis://{}", listener.local_addr().expect("it is bound"));
        let port = server.port();
        let tap = std::thread::spawn(move || {
            let (client, _) = listener.accept().expect("the client connects");
            let server = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
            tapped(client, server)
        });
        let token = client(&url);
        let sent = tap.join().expect("the client has ended");
        let requests = parsed(&sent).into_iter().filter(|request| {
            // A server that does not know a script gets it in full, once.
            !request[0].eq_ignore_ascii_case(b"EVAL")
        });
        Self { token, requests: requests.map(packed).collect() }
    }

    fn requests<const N: usize>(self) -> [Request; N] {
        let Self { token, requests } = self;
        let requests: Vec<Request> =
            requests.into_iter().map(|bytes| Request { token: token.clone(), bytes }).collect();
        let number = requests.len();
        requests.try_into().unwrap_or_else(|_| panic!("{number} requests instead of {N}"))
    }
}

/// A command that prints its token and then works.
fn exec(url: &str, options: &[&str], work: &str) -> Command {
    let script = format!("echo $RLOCK_TOKEN\n{work}");
    let arguments = ["exec"].iter().chain(options).copied();
    let mut command = support::rlock(arguments.chain([NAME, "--", "sh", "-c", &script]));
    command.env("RLOCK_URL", url).stdin(Stdio::null());
    command
}

/// Forwards data both ways until the client disconnects, and returns what the client sent.
fn tapped(mut client: TcpStream, mut server: TcpStream) -> Vec<u8> {
    let mut replies = server.try_clone().expect("a connection can be shared");
    let mut receiver = client.try_clone().expect("a connection can be shared");
    let back = std::thread::spawn(move || std::io::copy(&mut replies, &mut receiver));
    let mut sent = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        sent.extend_from_slice(&buffer[..count]);
        server.write_all(&buffer[..count]).expect("the server reads");
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
    let _ = back.join();
    sent
}

/// The arguments of each request.
fn parsed(mut sent: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut parser = Parser::new();
    let arguments = |value| match value {
        Value::Array(values) => values.into_iter().map(argument).collect(),
        other => panic!("a client sent {other:?}"),
    };
    std::iter::from_fn(|| parser.parse_value(&mut sent).ok()).map(arguments).collect()
}

fn argument(value: Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes,
        other => panic!("a client sent {other:?}"),
    }
}

fn packed(arguments: Vec<Vec<u8>>) -> Vec<u8> {
    let mut command = Cmd::new();
    command.arg(arguments);
    command.get_packed_command()
}

/// A request that can be sent again for another lock and another token.
pub(crate) struct Request {
    token: String,
    bytes: Vec<u8>,
}

impl Request {
    /// The bytes to send. The name and the token have the length of those in the recording.
    pub(crate) fn with(&self, name: &str, token: &str) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (old, new) in [(NAME, name), (&self.token, token)] {
            assert_eq!(old.len(), new.len(), "{new}");
            let mut from = 0;
            while let Some(at) = find(&bytes[from..], old.as_bytes()) {
                bytes[from + at..from + at + old.len()].copy_from_slice(new.as_bytes());
                from += at + old.len();
            }
        }
        bytes
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
