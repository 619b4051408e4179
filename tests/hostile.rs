//! A foreign or hostile server cannot hold up rlock, use up the memory, or put words into its mouth.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::errors::{fails, reports_in_one_harmless_line};
use crate::support::server::free_port;
use crate::support::{Client, Finished, LongerWait, Running, at, binary};
use crate::tls::{Authority, trusting};

/// A server that does this with every connection. Returns its address.
fn serve(act: impl FnMut(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().flatten().for_each(act));
    address
}

/// A server that sends these bytes to each client, and nothing more. Returns its address.
fn saying(bytes: &'static [u8]) -> String {
    let mut open = Vec::new();
    serve(move |mut client| {
        let _ = client.write_all(bytes);
        open.push(client);
    })
}

#[test]
fn a_server_that_is_not_redis_is_rejected_with_78() {
    for words in [
        &b"SSH-2.0-OpenSSH_9.2p1\r\n"[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x50",
        b"*2\r\n$4\r\nbusy\r\n*1\r\n:1\r\n",
    ] {
        let url = format!("redis://{}", saying(words));
        fails(&mut at(&url, "acquire -n L"), 78, &["Redis or Valkey"]);
    }
}

#[test]
fn a_server_that_hangs_up_or_never_answers_causes_69() {
    let hangs_up = format!("redis://{}", serve(drop));
    fails(&mut at(&hangs_up, "acquire L"), 69, &[]);
    for words in [&b""[..], b"*3\r\n$7\r\ngrant", b"$1000000\r\nabc"] {
        let url = format!("redis://{}", saying(words));
        let start = Instant::now();
        let exec = "exec --ttl 1m --io-timeout 200ms L true";
        fails(&mut at(&url, exec), 69, &["did not answer within 200ms"]);
        assert!(start.elapsed() >= Duration::from_millis(200));
    }
}

#[test]
fn a_server_that_never_decides_is_asked_for_no_longer_than_five_timeouts() {
    let again = || {
        serve(|mut client| {
            while client.read(&mut [0; 64 * 1024]).is_ok_and(|request| request > 0) {
                // It takes its time, but not too much.
                std::thread::sleep(Duration::from_millis(30));
                let _ = client.write_all(b"*2\r\n$5\r\nagain\r\n$2\r\n0 \r\n");
            }
        })
    };
    for line in ["exec -n L true", "acquire -w 300ms L", "release --force --id 5f0c21aa L"] {
        let mut longer = LongerWait::of("25s");
        let client = Client::of(format!("redis://{}", again())).with("RLOCK_IO_TIMEOUT", "200ms");
        client.run(line).exits(69).says("no decision within 1s");
        longer.is_not_over();
    }
}

#[test]
fn text_from_a_server_cannot_control_a_terminal() {
    for words in [
        "-ERR \u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m \u{202e}evil\u{2028}\r\n",
        "-MOVED 1 \u{1b}[2J\u{9b}:x\r\n",
    ] {
        let url = format!("redis://{}", saying(words.as_bytes()));
        for line in ["exec L true", "acquire --json L"] {
            reports_in_one_harmless_line(&mut at(&url, line), 78);
        }
    }
}

#[test]
fn a_list_without_end_is_refused() {
    let server = serve(|mut client| {
        while client.read(&mut [0; 64 * 1024]).is_ok_and(|request| request > 0) {
            let _ = client.write_all(b"*2\r\n$1\r\n1\r\n*0\r\n");
        }
    });
    let mut inspect = at(&format!("redis://{server}"), "inspect --io-timeout 10m");
    fails(&mut inspect, 78, &[&server, "no end of SCAN"]);
}

#[test]
fn an_endless_reply_of_tiny_elements_takes_bounded_memory() {
    let server = serve(|mut client| {
        let _ = client.write_all(b"*9000000000000000\r\n");
        let many = b":1\r\n".repeat(10_000);
        while client.write_all(&many).is_ok() {}
    });
    // In KiB. The elements take 64 MiB, and twice that while their array grows.
    let limited = format!("ulimit -v 350000; exec {} inspect --io-timeout 1m L", binary());
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited]).env("RLOCK_URL", format!("redis://{server}"));
    fails(&mut shell, 78, &["exceeds 64 MiB"]);
}

#[test]
fn a_server_cannot_give_an_invalid_host_name() {
    for (scheme, reply, line) in [
        ("redis+cluster", "-MOVED 5 x\u{9b}2J\u{202e}:7\r\n", "acquire L"),
        ("redis+cluster", "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$3\r\nx\ny\r\n:7\r\n", "inspect"),
        ("redis+sentinel", "*2\r\n$3\r\nx\ny\r\n$1\r\n7\r\n", "acquire L"),
    ] {
        let service = if scheme == "redis+sentinel" { "/svc" } else { "" };
        let url = format!("{scheme}://{}{service}", saying(reply.as_bytes()));
        fails(&mut at(&url, line), 78, &["names a server with an invalid host name; "]);
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
    let client = trusting(&authority, &format!("rediss://localhost:{port}"));
    let mut acquire = client.rlock("acquire --io-timeout 300ms L");
    fails(&mut acquire, 69, &["did not answer within 300ms"]);
}
