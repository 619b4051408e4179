//! What holders that only renew their leases cost the server.

use std::time::{Duration, Instant};

use super::memory::IDLE;
use super::{MOST, ROUNDS};
use crate::load::{Connection, Cost};
use crate::recording::{Request, name, token};
use crate::statistics::memory;
use crate::support::Server;

/// How long a holder waits from one renewal to the next, at the default TTL of 30 s.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// Renewals per round that are sent as fast as the server answers.
const FAST: usize = 10_000;
/// How many connections a thread sends to before it reads the replies.
const BATCH: usize = 250;

/// What a number of holders costs the server.
pub(super) struct Renewing {
    pub(super) holders: usize,
    /// When every holder renews once per period.
    pub(super) paced: Cost,
    /// When every holder renews as often as the server answers.
    pub(super) fast: Cost,
    /// Memory of the server for each holder, with its connection.
    pub(super) bytes: f64,
}

pub(super) fn measure(server: &Server, requests: &[Request; 3]) -> Vec<Renewing> {
    println!("  holders that renew every {} s, each over its own connection:", PERIOD.as_secs());
    [1_000, MOST].map(|holders| renewing(server, requests, holders)).into()
}

fn renewing(server: &Server, requests: &[Request; 3], number: usize) -> Renewing {
    server.cli(&["FLUSHALL"]);
    let before = memory(server);
    let mut holders = Holders::new(server.port(), requests, number);
    let paced = holders.paced(server);
    std::thread::sleep(IDLE);
    let bytes = (memory(server) - before) / number as f64;
    let fast = holders.fast(server);
    println!(
        "    {number:>6} holders: {:.0} renewals a second use {:.1}% of a core; {bytes:.0} B of \
         memory each; at most {:.0} renewals a second, {:.1} µs each",
        paced.per_second,
        paced.share * 100.0,
        fast.per_second,
        fast.micros,
    );
    Renewing { holders: number, paced, fast, bytes }
}

/// The connection and the renewal of each holder.
struct Holders(Vec<(Connection, Vec<u8>)>);

impl Holders {
    fn new(port: u16, [acquire, renew, _]: &[Request; 3], number: usize) -> Self {
        let holder = |number| {
            let (name, token) = (name(number), token(number));
            let mut connection = Connection::to(port);
            connection.send(&acquire.with(&name, &token));
            connection.expect(1, "granted");
            (connection, renew.with(&name, &token))
        };
        Self((0..number).map(holder).collect())
    }

    /// All renew once in the period, one after another. A round is a part of the period.
    fn paced(&mut self, server: &Server) -> Cost {
        let part = self.0.len() / ROUNDS;
        let pause = PERIOD / self.0.len() as u32;
        let costs: Vec<Cost> = self
            .0
            .chunks_mut(part)
            .map(|holders| {
                Cost::of(server, holders.len(), || {
                    let mut due = Instant::now();
                    for (connection, renewal) in holders {
                        connection.send(renewal);
                        connection.expect(1, "renewed");
                        due += pause;
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    }
                })
            })
            .collect();
        Cost::median(&costs)
    }

    /// All renew as often as the server answers.
    fn fast(&mut self, server: &Server) -> Cost {
        let half = self.0.len() / 2;
        let times = FAST / self.0.len();
        let round = |holders: &mut [(Connection, Vec<u8>)]| {
            for batch in holders.chunks_mut(BATCH) {
                batch.iter_mut().for_each(|(connection, renewal)| connection.send(renewal));
                batch.iter_mut().for_each(|(connection, _)| connection.expect(1, "renewed"));
            }
        };
        let costs: Vec<Cost> = (0..ROUNDS)
            .map(|_| {
                Cost::of(server, FAST, || {
                    std::thread::scope(|scope| {
                        for holders in self.0.chunks_mut(half) {
                            scope.spawn(move || (0..times).for_each(|_| round(holders)));
                        }
                    });
                })
            })
            .collect();
        Cost::median(&costs)
    }
}
