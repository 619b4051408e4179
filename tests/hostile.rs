//! A foreign or hostile server cannot hold up rlock, use up the memory, or put words into its mouth.

use std::io::{BufRead, BufReader, Read, Write, copy};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::errors::{fails, reports_in_one_harmless_line};
use crate::support::*;
use crate::tls::{Authority, trusting};

/// A server that does this with every connection. Returns its address.
pub(crate) fn serve(act: impl FnMut(TcpStream) + Send + 'static) -> String {
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
                let _ = client.write_all(b"*2\r\n$5\r\nagain\r\n$2\r\n0 \r\n");
            }
        })
    };
    let undecided = "no decision within 1s";
    for (line, told) in [
        ("exec -n L true", undecided),
        // The end of the wait may come first.
        ("acquire -w 300ms L", ""),
        ("release --force --id 5f0c21aa L", undecided),
    ] {
        let mut longer = LongerWait::of("25s");
        let client = Client::of(format!("redis://{}", again())).with("RLOCK_IO_TIMEOUT", "200ms");
        client.run(line).exits(69).says(told);
        longer.is_not_over();
    }
}

#[test]
fn a_request_that_does_not_wait_is_never_left_in_the_queue() {
    let (server, _holder) = held(&[]);
    let socket = server.socket();
    let waiting = serve(move |client| {
        let mut server = UnixStream::connect(&socket).unwrap();
        let (mut replies, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || copy(&mut replies, &mut back));
        std::thread::spawn(move || {
            let mut requests = BufReader::new(client);
            while let Some(mut words) = request(&mut requests) {
                // The heartbeat: see lua/asking.lua.
                if let Some(heartbeat) = words.get_mut(13).filter(|it| *it == "0") {
                    *heartbeat = "9000".into();
                }
                let words = array(&Vec::from_iter(words.iter().map(bulk)));
                server.write_all(&words).unwrap();
            }
        });
    });
    Client::of(format!("redis://{waiting}")).run("exec -n L true").exits(78);
}

#[test]
fn a_server_that_quotes_its_requests_reveals_no_secret() {
    let token = "12345678-1234-4123-8123-123456789abc";
    let server = serve(|mut client| {
        let mut request = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = client.read(&mut request) {
            let text = String::from_utf8_lossy(&request[..length]);
            // Beside the sizes, no more than fits into a message.
            let words = text.lines().filter(|it| !it.starts_with(['*', '$']) && it.len() == 36);
            let words = ["s3cr3t-PW"].into_iter().filter(|it| text.contains(it)).chain(words);
            let quoted = Vec::from_iter(words).join("' '");
            let _ = write!(client, "{}", format!("-ODD '{quoted}'\r\n").repeat(2));
        }
    });
    let client = Client::of(format!("redis://{server}")).with("RLOCK_PASSWORD", "s3cr3t-PW");
    let (release, renew) = (format!("release L {token}"), format!("renew L {token}"));
    for line in ["exec -n L true", "inspect", "inspect --servers", &release, &renew] {
        let finished = client.run(line);
        let printed = finished.out() + &finished.err();
        assert!(printed.contains("replied with ODD"), "{line}: {printed}");
        assert!(!printed.contains("s3cr3t-PW") && !printed.contains(token), "{line}: {printed}");
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
        // First, the client looks at 32 hash slots at once.
        let mut replies = 32;
        while client.read(&mut [0; 64 * 1024]).is_ok_and(|request| request > 0) {
            let _ = client.write_all(&b"*2\r\n$1\r\n1\r\n*0\r\n".repeat(replies));
            replies = 1;
        }
    });
    let mut inspect = at(&format!("redis://{server}"), "inspect --io-timeout 10m");
    fails(&mut inspect, 78, &[&server, "no end of SCAN"]);
}

/// The words of the next request; `None` at the end.
pub(crate) fn request(requests: &mut impl BufRead) -> Option<Vec<String>> {
    fn number(requests: &mut impl BufRead) -> Option<usize> {
        let mut line = String::new();
        requests.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse().ok()
    }
    let count = number(requests)?;
    let word = |_| {
        let length = number(requests)?;
        let mut word = vec![0; length + 2];
        requests.read_exact(&mut word).ok()?;
        Some(String::from_utf8_lossy(&word[..length]).into_owned())
    };
    (0..count).map(word).collect()
}

/// A server that gives this answer to each request. Returns its address.
fn answering(answer: impl Fn(&[String]) -> Vec<u8> + Send + 'static) -> String {
    serve(move |mut client| {
        let mut requests = BufReader::new(client.try_clone().unwrap());
        while let Some(words) = request(&mut requests) {
            if client.write_all(&answer(&words)).is_err() {
                return;
            }
        }
    })
}

pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

pub(crate) fn array(elements: &[Vec<u8>]) -> Vec<u8> {
    [format!("*{}\r\n", elements.len()).into_bytes(), elements.concat()].concat()
}

/// A held lock with so many waiters.
fn view(waiters: usize) -> Vec<u8> {
    let waiter = "\nwaiter \nmode shared\nsince 1\nid w\nhost h\nuser u\npid 1\ncommand c\nlabel l";
    let lock = "\nlock held\nnow 9\nmode shared\nleft 9\nholders 0\nwaiters 0\nfence 1";
    let mut records = vec![bulk(waiter); waiters];
    records.push(bulk(lock));
    array(&records)
}

/// An rlock that may take 64 MiB more than it takes with any server.
fn with_little_memory(url: &str, line: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -v 78000; exec {} {line}", binary())]);
    shell.env("RLOCK_URL", url).env("MALLOC_ARENA_MAX", "1");
    shell
}

#[test]
fn an_endless_reply_of_tiny_elements_takes_bounded_memory() {
    for element in [":1\r\n", "+x\r\n", "$1\r\nx\r\n", "*1\r\n+x\r\n", "-x y\r\n"] {
        let server = serve(move |mut client| {
            let _ = client.write_all(b"*9000000000000000\r\n");
            let many = element.repeat(10_000);
            while client.write_all(many.as_bytes()).is_ok() {}
        });
        let mut inspect =
            with_little_memory(&format!("redis://{server}"), "inspect --io-timeout 1m L");
        fails(&mut inspect, 78, &["exceeds 4 MiB"]);
    }
}

#[test]
fn a_nomination_takes_bounded_memory_and_only_a_member_of_a_quorum_may_send_one() {
    let server = answering(|words| match &*words[0] {
        "INFO" => bulk("run_id:1\r\nuptime_in_seconds:999999\r\n"),
        _ => {
            let nomination = [b"1 1 ".to_vec(), vec![0xff; 3 << 20]].concat();
            let one = || b":1\r\n".to_vec();
            array(&[bulk("proposed"), view(0), one(), one(), bulk("1"), bulk(nomination), bulk("")])
        }
    });
    let line = "acquire -n --slots 9 L";
    let mut acquire = with_little_memory(&format!("redis://{server}"), line);
    fails(&mut acquire, 78, &["unexpected reply"]);
    let honest = [Server::start(), Server::start()];
    let urls = format!("{} redis://{server} {}", honest[0].url(), honest[1].url());
    let mut acquire = with_little_memory(&urls, "acquire -w 1m --ttl 1s --slots 9 L");
    run(&mut acquire).exits(0);
}

#[test]
fn a_list_takes_bounded_memory() {
    // How many locks, how many waiters each has, and what is listed of them.
    for (locks, waiters, told) in [
        (1_000_000, 0, Err("locks take more than 32 MiB; use a narrower pattern or --prefix")),
        (5_000, 100, Err("locks take more than 32 MiB")),
        (5, 301, Err("unexpected reply")),
        (800, 100, Ok(800)),
        (30_000, 0, Ok(30_000)),
    ] {
        const PAGE: usize = 5_000;
        let server = answering(move |words| match &*words[0] {
            "SCAN" => {
                let from: usize = words[1].parse().unwrap();
                let to = locks.min(from + PAGE);
                let names: Vec<_> = (from..to).map(|it| bulk(format!("rlock:{it:07}"))).collect();
                let next = if to == locks { 0 } else { to };
                array(&[bulk(next.to_string()), array(&names)])
            }
            _ => view(waiters),
        });
        let url = format!("redis://{server}");
        let mut inspect = with_little_memory(&url, "inspect --json --io-timeout 1m");
        match told {
            Ok(listed) => {
                let output = run(&mut inspect).exits(0);
                assert_eq!(output.out().matches(r#""key":"#).count(), listed);
            }
            Err(told) => drop(fails(&mut inspect, 78, &[told])),
        }
    }
}

#[test]
fn a_cluster_with_more_masters_than_redis_allows_is_refused() {
    let server = answering(|_| {
        let number = |number: usize| format!(":{number}\r\n").into_bytes();
        let master = |port| array(&[bulk("127.0.0.1"), number(port)]);
        let slots = |slot| array(&[number(slot), number(slot), master(1 + slot)]);
        array(&(0..1_001).map(slots).collect::<Vec<_>>())
    });
    let mut inspect = at(&format!("redis+cluster://{server}"), "inspect");
    fails(&mut inspect, 78, &["unexpected reply"]);
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
