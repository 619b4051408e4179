//! Loads a server from several connections, and measures what that costs the server.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use redis::{Parser, Value};

use crate::statistics::cpu_seconds;
use crate::support::Server;

/// A connection like those of rlock.
pub(crate) struct Connection {
    stream: TcpStream,
    parser: Parser,
}

impl Connection {
    pub(crate) fn to(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
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

/// What a series of operations costs the server.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) per_second: f64,
    /// The server's CPU time for each operation, in microseconds.
    pub(crate) micros: f64,
    /// The share of one core that the server uses.
    pub(crate) share: f64,
}

impl Cost {
    pub(crate) fn of(server: &Server, operations: usize, run: impl FnOnce()) -> Self {
        let before = cpu_seconds(server);
        let start = Instant::now();
        run();
        let elapsed = start.elapsed().as_secs_f64();
        let used = cpu_seconds(server) - before;
        let operations = operations as f64;
        Self {
            per_second: operations / elapsed,
            micros: used / operations * 1e6,
            share: used / elapsed,
        }
    }

    /// The median of each figure.
    pub(crate) fn median(costs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(costs.iter().map(figure).collect());
        Self {
            per_second: of(|cost| cost.per_second),
            micros: of(|cost| cost.micros),
            share: of(|cost| cost.share),
        }
    }
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
