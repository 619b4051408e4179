//! The requests that rlock sends to a server, recorded from the binary. A load repeats them for
//! other locks and tokens, faster than processes can be started.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use redis::{Cmd, Parser};

use crate::support::{self, Finished, Running, Server};

/// The lock of the recording. Other locks have names of the same length.
pub(crate) const NAME: &str = "deploy:job-000000";

pub(crate) fn name(number: usize) -> String {
    format!("deploy:job-{number:06}")
}

/// A token of the same form as those of rlock.
pub(crate) fn token(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
}

/// Records an exec with these options and this work: acquire, one renewal if it works for long enough,
/// release.
pub(crate) fn of_exec<const N: usize>(
    server: &Server,
    options: &[&str],
    work: &str,
) -> [Request; N] {
    of(server, |url| support::run(&mut exec(url, options, work)).out())
}

/// Records an exec that waits: join the queue, sleep, claim the lock, release.
pub(crate) fn of_waiter(server: &Server) -> [Request; 4] {
    let holder = support::holder(server, &[], NAME);
    of(server, |url| {
        let mut waiter = Running::start(&mut exec(url, &[], ""));
        waiter.told("waiting at position");
        holder.finish();
        let token = waiter.line();
        assert_eq!(waiter.finish().code(), 0);
        token
    })
}

/// Records `client`, which uses a single connection and returns its token.
fn of<const N: usize>(server: &Server, client: impl FnOnce(&str) -> String) -> [Request; N] {
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
    let requests: Vec<Request> = parsed(&sent)
        .into_iter()
        // A server that does not know a script gets it in full, once.
        .filter(|request| !request[0].eq_ignore_ascii_case(b"EVAL"))
        .map(|request| Request { token: token.clone(), bytes: packed(request) })
        .collect();
    let number = requests.len();
    requests.try_into().unwrap_or_else(|_| panic!("{number} requests instead of {N}"))
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
    let requests = std::iter::from_fn(|| parser.parse_value(&mut sent).ok());
    requests.map(|request| redis::from_redis_value(request).expect("texts")).collect()
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

impl Request {
    /// The request for the lock of the recording and the first token, as C writes it.
    pub(crate) fn as_text(&self) -> String {
        self.with(NAME, &token(0)).iter().map(|byte| format!("\\{byte:03o}")).collect()
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
