//! A hostile server cannot hold up rlock, use up the memory, or put words into its mouth.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use crate::support::server::free_port;
use crate::support::{Finished, Running, binary, rlock, run};
use crate::tls::{Authority, trusting};

/// A server that does this with every connection. Returns its port.
fn serve(act: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(act));
    port
}

/// Repeats the bytes until the client hangs up.
fn repeat(client: &mut impl Write, bytes: &[u8]) {
    let many = bytes.repeat(10_000);
    while client.write_all(&many).is_ok() {}
}

#[test]
fn an_endless_reply_of_tiny_elements_takes_bounded_memory() {
    let port = serve(|mut client| {
        let _ = client.write_all(b"*9000000000000000\r\n");
        repeat(&mut client, b":1\r\n");
    });
    // In KiB. The elements take 64 MiB, and twice that while their array grows.
    let limited = format!("ulimit -v 350000; exec {} inspect --io-timeout 1m L", binary());
    let mut shell = Command::new("sh");
    run(shell.args(["-c", &limited]).env("RLOCK_URL", format!("redis://127.0.0.1:{port}")))
        .exits(78)
        .says("exceeds 64 MiB");
}

#[test]
fn a_server_cannot_give_an_invalid_host_name() {
    for (scheme, reply, arguments) in [
        ("redis+cluster", "-MOVED 5 x\u{9b}2J\u{202e}:7\r\n", ["acquire", "L"]),
        ("redis+cluster", "-ASK 5 x y:7\r\n", ["acquire", "L"]),
        ("redis+cluster", "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$3\r\nx\ny\r\n:7\r\n", ["inspect", "-v"]),
        ("redis+sentinel", "*2\r\n$3\r\nx\ny\r\n$1\r\n7\r\n", ["acquire", "L"]),
    ] {
        let port = serve(|mut client| {
            let _ = client.write_all(reply.as_bytes());
            let _ = client.read(&mut [0; 100_000]);
        });
        let service = if scheme == "redis+sentinel" { "/svc" } else { "" };
        let mut command = rlock(arguments);
        run(command.env("RLOCK_URL", format!("{scheme}://127.0.0.1:{port}{service}")))
            .exits(78)
            .says("names a server with an invalid host name; ");
    }
}

#[test]
fn a_server_that_sends_session_tickets_without_end_gets_no_more_time_than_any_other() {
    let authority = Authority::new();
    authority.signs("server", "DNS:localhost", "-days 2");
    let port = free_port();
    let options = "-tls1_3 -num_tickets 1000000000 -cert server.crt -key server.key -accept";
    let mut openssl = Command::new("openssl");
    openssl.arg("s_server").args(options.split(' ')).arg(port.to_string());
    let mut openssl = Running::start(openssl.current_dir(authority.file("")));
    while openssl.line() != "ACCEPT" {}
    let url = format!("rediss://localhost:{port}");
    run(&mut trusting(&authority, &url, &["acquire", "--io-timeout", "300ms", "L"]))
        .exits(69)
        .says("did not answer within 300ms");
}
