//! How often one server can grant and release a free lock.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::ROUNDS;
use crate::load::{Connection, Cost, median};
use crate::recording::{Request, name, token};
use crate::statistics::micros_per_script;
use crate::support::Server;

/// How many locks take turns.
const LOCKS: usize = 1_000;
/// How many pairs of requests a connection has in flight.
const BATCH: usize = 50;

/// Pairs per round, over connections that stay open.
const PAIRS: usize = 20_000;
/// Pairs per round, each over its own connection. There are fewer of them, because each leaves a
/// port unusable for a while.
const CONNECTING: usize = 4_000;
/// How many of those connect at once.
const CLIENTS: usize = 8;

/// Returns what a pair with its own connection costs.
pub(super) fn measure(server: &Server, [acquire, _, release]: &[Request; 3]) -> Cost {
    let tokens = AtomicUsize::new(0);
    let load = Load { port: server.port(), tokens, acquire, release };
    load.pipelined(PAIRS);
    let mut costs = [Vec::new(), Vec::new()];
    let mut scripts = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        costs[0].push(Cost::of(server, PAIRS, || load.pipelined(PAIRS)));
        costs[1].push(Cost::of(server, CONNECTING, || load.connecting(CONNECTING)));
        for (times, time) in scripts.iter_mut().zip(load.scripts(server)) {
            times.push(time);
        }
    }
    let [open, own] = costs.map(|costs| Cost::median(&costs));
    println!("  acquire and release a free lock:");
    for (name, cost) in [("over open connections", open), ("with a connection for each", own)] {
        println!(
            "    {name:<26} {:>6.0} pairs a second, {:>3.0}% of a core, {:>5.1} µs of it a pair",
            cost.per_second,
            cost.share * 100.0,
            cost.micros
        );
    }
    let [acquire, release] = scripts.map(median);
    println!("    scripts: acquire {acquire:.1} µs, release {release:.1} µs");
    own
}

struct Load<'a> {
    port: u16,
    /// Each pair has a new token.
    tokens: AtomicUsize,
    acquire: &'a Request,
    release: &'a Request,
}

impl Load<'_> {
    fn pair(&self) -> [Vec<u8>; 2] {
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        let (name, token) = (name(number % LOCKS), token(number));
        [self.acquire, self.release].map(|request| request.with(&name, &token))
    }

    /// Two connections, so that the server has the requests of one while the other reads.
    fn pipelined(&self, pairs: usize) {
        self.with_threads(2, || {
            let mut connection = Connection::to(self.port);
            for _ in 0..pairs / 2 / BATCH {
                let requests: Vec<u8> = (0..BATCH).flat_map(|_| self.pair().concat()).collect();
                connection.send(&requests);
                for _ in 0..BATCH {
                    connection.expect(1, "granted");
                    connection.expect(1, "released");
                }
            }
        });
    }

    /// Clients like `rlock exec`: they connect, acquire, release and disconnect.
    fn connecting(&self, pairs: usize) {
        self.with_threads(CLIENTS, || {
            for _ in 0..pairs / CLIENTS {
                let [acquire, release] = self.pair();
                let mut connection = Connection::to(self.port);
                connection.send(&acquire);
                connection.expect(1, "granted");
                connection.send(&release);
                connection.expect(1, "released");
            }
        });
    }

    fn with_threads(&self, threads: usize, run: impl Fn() + Sync) {
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(&run))));
    }

    /// The time that the server spends in each of the two scripts, in microseconds.
    fn scripts(&self, server: &Server) -> [f64; 2] {
        let pairs: Vec<[Vec<u8>; 2]> = (0..LOCKS).map(|_| self.pair()).collect();
        let mut connection = Connection::to(self.port);
        [(0, "granted"), (1, "released")].map(|(request, word)| {
            server.cli(&["CONFIG", "RESETSTAT"]);
            for batch in pairs.chunks(BATCH) {
                connection
                    .send(&batch.iter().flat_map(|pair| pair[request].clone()).collect::<Vec<_>>());
                connection.expect(batch.len(), word);
            }
            micros_per_script(server)
        })
    }
}
