//! How much memory locks and waiters take on the server.

use std::time::Duration;

use super::MOST;
use crate::load::Connection;
use crate::recording::{NAME, Recording, Request, name, token};
use crate::statistics::memory;
use crate::support::Server;

/// How many clients every measurement but the largest has.
const CLIENTS: usize = 1_000;
/// How many requests a connection has in flight.
const BATCH: usize = 100;
/// How many holds the history of a lock has at most.
const HISTORY: usize = 16;
/// How many releases a lock remembers at most.
const MARKS: usize = 1_000;

pub(super) fn measure(server: &Server, [acquire, _, release]: &[Request; 3]) {
    // No lock may be held while clients are recorded.
    server.cli(&["FLUSHALL"]);
    let [share, _] = Recording::of_shared_holder(server);
    let [join, sleep, _, _] = Recording::of_waiter(server);
    let load = Load { server, port: server.port() };
    println!("  memory of the server for each of {CLIENTS}, and of {MOST}:");
    let print = |what: &str, measure: &dyn Fn(usize)| {
        let [few, many] = [CLIENTS, MOST].map(|number| load.memory(number, || measure(number)));
        println!("    {what:<50} {few:>6.0} B {many:>6.0} B");
    };
    let one = |_| NAME.to_owned();
    let cycle = |locks, times| {
        for first in (0..times).map(|time| time * locks) {
            let name = |number| name(number % locks);
            load.ask(acquire, first..first + locks, name, "granted");
            load.ask(release, first..first + locks, name, "released");
        }
    };
    print("held lock", &|locks| load.ask(acquire, 0..locks, name, "granted"));
    print("holder of one shared lock", &|holders| load.ask(&share, 0..holders, one, "granted"));
    print("waiter for one lock", &|waiters| {
        load.ask(&join, MOST..=MOST, one, "granted");
        load.ask(&join, 0..waiters, one, "queued");
    });
    println!("  memory of the server for each of {CLIENTS}:");
    let print = |what: &str, memory: f64| println!("    {what:<50} {memory:>6.0} B");
    print("released lock, in the first minute", load.memory(CLIENTS, || cycle(CLIENTS, 1)));
    for (what, holds) in [("the same later that day", 1), ("the same after 16 holds", HISTORY)] {
        let used = load.memory(CLIENTS, || {
            cycle(CLIENTS, holds);
            load.pass_a_minute();
        });
        print(what, used);
    }
    let few = 10;
    let used = load.memory(few, || cycle(few, MARKS));
    print("lock released 1,000 times in a minute", used);
    let used = load.memory(CLIENTS, || {
        load.ask(&join, MOST..=MOST, one, "granted");
        load.sleepers(&join, &sleep)
    });
    print("waiter for one lock, with its connection", used);
    server.cli(&["FLUSHALL"]);
}

struct Load<'a> {
    server: &'a Server,
    port: u16,
}

impl Load<'_> {
    /// The memory of each lock or client after these requests, in bytes. Connections that `requests`
    /// returns stay open until it is measured.
    fn memory<T>(&self, number: usize, requests: impl FnOnce() -> T) -> f64 {
        self.server.cli(&["FLUSHALL"]);
        let before = memory(self.server);
        let connections = requests();
        let after = memory(self.server);
        drop(connections);
        (after - before) / number as f64
    }

    /// Sends a request for each of these tokens.
    fn ask(
        &self,
        request: &Request,
        tokens: impl IntoIterator<Item = usize>,
        name: impl Fn(usize) -> String,
        word: &str,
    ) {
        let mut connection = Connection::to(self.port);
        let requests: Vec<Vec<u8>> =
            tokens.into_iter().map(|number| request.with(&name(number), &token(number))).collect();
        for batch in requests.chunks(BATCH) {
            connection.send(&batch.concat());
            connection.expect(batch.len(), word);
        }
    }

    /// Waiters that sleep until a message wakes them.
    fn sleepers(&self, join: &Request, sleep: &Request) -> Vec<Connection> {
        let sleeper = |number| {
            let mut connection = Connection::to(self.port);
            connection.send(&join.with(NAME, &token(number)));
            connection.expect(1, "queued");
            connection.send(&sleep.with(NAME, &token(number)));
            connection
        };
        let sleepers = (0..CLIENTS).map(sleeper).collect();
        std::thread::sleep(IDLE);
        sleepers
    }

    /// Removes the keys that would expire within a minute after a release.
    fn pass_a_minute(&self) {
        const FORGET: &str = "for _, key in ipairs(redis.call('KEYS', '*?over')) do
            redis.call('DEL', key) end";
        self.server.cli(&["EVAL", FORGET, "0"]);
    }
}

/// How long a connection is idle before the server has shrunk its buffers.
pub(super) const IDLE: Duration = Duration::from_secs(6);
