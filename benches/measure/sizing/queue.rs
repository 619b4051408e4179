//! What a queue costs the server, depending on its length.

use super::{MOST, ROUNDS};
use crate::load::{Connection, Cost};
use crate::recording::{NAME, Recording, Request, token};
use crate::support::Server;

/// How many batches a round has, and how many handoffs or heartbeats a batch has.
const BATCHES: usize = 40;
const BATCH: usize = 50;

/// How many waiters join at once.
const JOINING: usize = 10;

pub(super) fn measure(server: &Server) {
    println!("  handoff to the next of a queue (release, claim, and a new waiter joins):");
    for waiters in [10, 100, 1_000, MOST] {
        let cost = Queue::new(server, waiters).handoffs();
        println!("    {waiters:>6} waiters: {:>6.1} µs of CPU time", cost.micros);
    }
    let cost = Queue::new(server, MOST).heartbeats();
    println!("    heartbeat of one of {MOST} waiters: {:.1} µs of CPU time", cost.micros);
}

struct Queue<'a> {
    server: &'a Server,
    connection: Connection,
    join: Request,
    /// A waiter repeats its request to claim the lock. Its heartbeats are the same.
    claim: Request,
    release: Request,
    /// The numbers of the tokens. The waiters follow the holder.
    holder: usize,
    waiters: usize,
}

impl<'a> Queue<'a> {
    fn new(server: &'a Server, waiters: usize) -> Self {
        // A waiter reminds the server of the holder that it saw, so it is recorded on the same data.
        server.cli(&["FLUSHALL"]);
        let [join, _, claim, release] = Recording::of_waiter(server);
        let mut connection = Connection::to(server.port());
        connection.send(&join.with(NAME, &token(0)));
        connection.expect(1, "granted");
        for first in (1..=waiters).step_by(JOINING) {
            let joining = (first..first + JOINING).flat_map(|it| join.with(NAME, &token(it)));
            connection.send(&joining.collect::<Vec<u8>>());
            connection.expect(JOINING, "queued");
        }
        Self { server, connection, join, claim, release, holder: 0, waiters }
    }

    fn handoffs(mut self) -> Cost {
        self.median(|queue, _| {
            let mut requests = Vec::new();
            for _ in 0..BATCH {
                requests.extend(queue.release.with(NAME, &token(queue.holder)));
                queue.holder += 1;
                requests.extend(queue.claim.with(NAME, &token(queue.holder)));
                requests.extend(queue.join.with(NAME, &token(queue.holder + queue.waiters)));
            }
            queue.connection.send(&requests);
            for _ in 0..BATCH {
                queue.connection.expect(1, "released");
                queue.connection.expect(1, "granted");
                queue.connection.expect(1, "queued");
            }
        })
    }

    /// One heartbeat of each waiter.
    fn heartbeats(mut self) -> Cost {
        assert_eq!(self.waiters, ROUNDS * BATCHES * BATCH);
        self.median(|queue, batch| {
            let first = queue.holder + 1 + batch * BATCH;
            let beats = (first..first + BATCH).flat_map(|it| queue.claim.with(NAME, &token(it)));
            queue.connection.send(&beats.collect::<Vec<u8>>());
            queue.connection.expect(BATCH, "queued");
        })
    }

    /// `run` also gets the number of the batch.
    fn median(&mut self, mut run: impl FnMut(&mut Self, usize)) -> Cost {
        let server = self.server;
        let mut batches = 0..;
        let mut round = || batches.by_ref().take(BATCHES).for_each(|batch| run(self, batch));
        let rounds = (0..ROUNDS).map(|_| Cost::of(server, BATCHES * BATCH, &mut round));
        Cost::median(&rounds.collect::<Vec<_>>())
    }
}
