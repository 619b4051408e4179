//! What locks cost one server. A few threads repeat requests that were recorded from the binary,
//! because starting processes would not saturate a server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::hyperfine::compare;
use crate::load::{Connection, Cost, ROUNDS, memory};
use crate::recording::{self, NAME, Request, name, token};
use crate::support::{self, Server};

/// How many holders or waiters the largest measurement has.
const MOST: usize = 10_000;
/// How long a holder waits from one renewal to the next, at the default TTL of 30 s.
const PERIOD: Duration = Duration::from_secs(10);
/// How long a connection is idle before the server has shrunk its buffers.
const IDLE: Duration = Duration::from_secs(6);
/// How many requests a connection has in flight.
const BATCH: usize = 50;

pub(crate) fn measure() {
    let server = Server::on_tcp(&["--maxclients", &(MOST + 100).to_string()]);
    let holder = recording::of_exec(&server, &[], "sleep 11");
    pairs(&server, &holder);
    handoffs(&server);
    renewals(&server, &holder);
    sleepers(&server);
    listing(&server);
}

/// Acquires and releases free locks.
fn pairs(server: &Server, [acquire, _, release]: &[Request; 3]) {
    const PAIRS: usize = 20_000;
    const CLIENTS: usize = 8;
    let tokens = AtomicUsize::new(0);
    let pair = || {
        let number = tokens.fetch_add(1, Ordering::Relaxed);
        [acquire, release].map(|request| request.with(&name(number % 1_000), &token(number)))
    };
    let in_threads = |threads: usize, run: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run))));
    };
    // Two connections, so that the server has the requests of one while the other reads.
    let open = || {
        in_threads(2, &|| {
            let mut connection = Connection::to(server);
            for _ in 0..PAIRS / 2 / BATCH {
                let requests: Vec<u8> = (0..BATCH).flat_map(|_| pair().concat()).collect();
                connection.send(&requests);
                for _ in 0..BATCH {
                    connection.expect(1, "granted");
                    connection.expect(1, "released");
                }
            }
        });
    };
    report("acquire and release, open connections", &Cost::of(server, PAIRS, open));
    // There are fewer of these, because each leaves a port unusable for a while.
    let connecting = || {
        in_threads(CLIENTS, &|| {
            for _ in 0..PAIRS / 5 / CLIENTS {
                let mut connection = Connection::to(server);
                for (request, word) in pair().iter().zip(["granted", "released"]) {
                    connection.send(request);
                    connection.expect(1, word);
                }
            }
        });
    };
    report("the same, each with its own connection", &Cost::of(server, PAIRS / 5, connecting));
}

fn report(what: &str, cost: &Cost) {
    println!("  {what}: {:.0} a second, {:.1} µs of CPU time each", cost.per_second, cost.micros);
}

/// Passes a lock through a queue: the holder releases it, a waiter claims it, and another joins.
fn handoffs(server: &Server) {
    // A waiter reminds the server of the holder that it saw, so it is recorded on the same data.
    server.cli(&["FLUSHALL"]);
    let [join, _, claim, release] = recording::of_waiter(server);
    let mut connection = Connection::to(server);
    let mut holder = 0;
    connection.send(&join.with(NAME, &token(holder)));
    connection.expect(1, "granted");
    for number in 1..=MOST {
        connection.send(&join.with(NAME, &token(number)));
        connection.expect(1, "queued");
    }
    let cost = Cost::of(server, 40 * BATCH, || {
        for _ in 0..40 {
            let mut requests = Vec::new();
            for _ in 0..BATCH {
                requests.extend(release.with(NAME, &token(holder)));
                holder += 1;
                requests.extend(claim.with(NAME, &token(holder)));
                requests.extend(join.with(NAME, &token(holder + MOST)));
            }
            connection.send(&requests);
            for word in ["released", "granted", "queued"].iter().cycle().take(3 * BATCH) {
                connection.expect(1, word);
            }
        }
    });
    report(&format!("handoff to the next of {MOST} waiters"), &cost);
}

/// Holders that only renew, each over its own connection.
fn renewals(server: &Server, [acquire, renew, _]: &[Request; 3]) {
    for number in [MOST / 10, MOST] {
        server.cli(&["FLUSHALL"]);
        let before = memory(server);
        let hold = |number| {
            let (name, token) = (name(number), token(number));
            let mut connection = Connection::to(server);
            connection.send(&acquire.with(&name, &token));
            connection.expect(1, "granted");
            (connection, renew.with(&name, &token))
        };
        let mut holders: Vec<_> = (0..number).map(hold).collect();
        // A round is a part of the period.
        let mut parts = holders.chunks_mut(number / ROUNDS);
        let cost = Cost::of(server, number / ROUNDS, || {
            let mut due = Instant::now();
            for (connection, renewal) in parts.next().into_iter().flatten() {
                connection.send(renewal);
                connection.expect(1, "renewed");
                due += PERIOD / number as u32;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        println!("  renewals of {number} holders every 10 s: {:.1}% of a core", cost.share());
        std::thread::sleep(IDLE);
        let used = (memory(server) - before) / number as f64;
        println!("  memory of a held lock with its connection: {used:.0} B");
    }
}

/// Waiters for one lock that sleep until a message wakes them.
fn sleepers(server: &Server) {
    const WAITERS: usize = 1_000;
    server.cli(&["FLUSHALL"]);
    let [join, sleep, _, _] = recording::of_waiter(server);
    let before = memory(server);
    let waiter = |number| {
        let mut connection = Connection::to(server);
        connection.send(&join.with(NAME, &token(number)));
        connection.expect(1, if number == 0 { "granted" } else { "queued" });
        connection.send(&sleep.with(NAME, &token(number)));
        connection
    };
    let connections: Vec<_> = (0..WAITERS).map(waiter).collect();
    std::thread::sleep(IDLE);
    let used = (memory(server) - before) / WAITERS as f64;
    println!("  memory of a waiter with its connection: {used:.0} B");
    drop(connections);
}

/// Locks that were released, and a list of locks that are held.
fn listing(server: &Server) {
    server.cli(&["FLUSHALL"]);
    let [acquire, release] = recording::of_exec(server, &["-t", "1h"], "");
    let before = memory(server);
    let mut connection = Connection::to(server);
    let mut ask = |request: &Request, word| {
        for number in 0..MOST {
            connection.send(&request.with(&name(number), &token(number)));
            connection.expect(1, word);
        }
    };
    ask(&acquire, "granted");
    let inspect = |name| format!("{} inspect --url {} {name}", support::binary(), server.tcp_url());
    compare(4, &[("inspect NAME", inspect(NAME)), ("inspect, 10,000 locks", inspect(""))]);
    ask(&release, "released");
    let used = (memory(server) - before) / MOST as f64;
    println!("  memory of a released lock: {used:.0} B");
}
