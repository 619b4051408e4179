//! Loads a server over several connections, and measures what that costs the server.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use redis::{Parser, Value};

use crate::support::Server;

/// Each figure is the median of this many rounds.
pub(crate) const ROUNDS: usize = 5;

/// A connection like those of rlock.
pub(crate) struct Connection {
    stream: TcpStream,
    parser: Parser,
}

impl Connection {
    pub(crate) fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server listens");
        stream.set_nodelay(true).expect("this is TCP");
        Self { stream, parser: Parser::new() }
    }

    pub(crate) fn send(&mut self, requests: &[u8]) {
        self.stream.write_all(requests).expect("the server reads");
    }

    /// Reads this many replies, each of which begins with this word.
    pub(crate) fn expect(&mut self, replies: usize, word: &str) {
        for _ in 0..replies {
            let reply = self.parser.parse_value(&mut self.stream).expect("the server replies");
            let first = match &reply {
                Value::Array(values) => values.first(),
                _ => None,
            };
            let expected = Value::BulkString(word.as_bytes().to_vec());
            assert_eq!(first, Some(&expected), "{reply:?}");
        }
    }
}

/// What an operation costs the server.
pub(crate) struct Cost {
    pub(crate) per_second: f64,
    /// The server's CPU time, in microseconds.
    pub(crate) micros: f64,
}

impl Cost {
    /// The medians of several rounds of so many operations.
    pub(crate) fn of(server: &Server, operations: usize, mut round: impl FnMut()) -> Self {
        let (mut per_second, mut micros) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (before, start) = (cpu_seconds(server), Instant::now());
            round();
            per_second.push(operations as f64 / start.elapsed().as_secs_f64());
            micros.push((cpu_seconds(server) - before) / operations as f64 * 1e6);
        }
        Self { per_second: median(per_second), micros: median(micros) }
    }

    /// The share of one core that the server uses, in percent.
    pub(crate) fn share(&self) -> f64 {
        self.micros * self.per_second / 1e4
    }
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn info(server: &Server, section: &str, field: &str) -> f64 {
    let told = server.cli(&["INFO", section]);
    let value = told.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(f64::NAN)
}

pub(crate) fn version(server: &Server) -> String {
    let told = server.cli(&["INFO", "server"]);
    let field = |name| told.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    match field("valkey_version:") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", field("redis_version:").unwrap_or("?")),
    }
}

/// The CPU time that the server has used, in seconds.
fn cpu_seconds(server: &Server) -> f64 {
    info(server, "cpu", "used_cpu_user") + info(server, "cpu", "used_cpu_sys")
}

/// The memory that the server has allocated, in bytes.
pub(crate) fn memory(server: &Server) -> f64 {
    info(server, "memory", "used_memory")
}
