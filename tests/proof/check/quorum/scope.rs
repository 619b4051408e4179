//! What a search plays: which clients take part, and how often each fault may occur.

use std::time::Duration;

use crate::check::scope::{TTL, mode_of, parsed, request, tick_of};
use crate::values::ttl;
use rlock::rules::quorum::majority;
use rlock::rules::waiter::heartbeat;
use rlock::rules::{Mode, Request};

/// How many servers the quorum has.
pub(super) const SERVERS: usize = 3;

/// A scope, written as `x,xn k1`: the clients, and how often each fault may occur.
///
/// Clients are `x` (exclusive), `s` (shared) and `2` (two slots). One with `n` does not wait, one
/// with `r` renews its lease, one with `t` begins only after the client before it had the lock, one
/// with `h` uses `--next`, and one with `u` uses `--supersede`. `l`, `g` and `L` change its clock, as
/// beside one server.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) name: &'static str,
    pub(super) clients: Vec<Terms>,
    pub(super) budget: Budget,
}

/// What one client does.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) word: &'static str,
    pub(super) waits: bool,
    pub(super) renews: bool,
    /// Whether it begins only after the client before it had the lock.
    pub(super) is_later: bool,
    /// How far its clock gets in a second of the servers.
    pub(super) tick: Duration,
    pub(super) request: Request,
}

/// How often each fault may still occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// d: a message crosses a tick.
    pub(super) delays: u8,
    /// b: a connection breaks, its request is sent again, and arrives twice.
    pub(super) breaks: u8,
    /// c: a client dies.
    pub(super) crashes: u8,
    /// l: a signal ends a wait.
    pub(super) leaves: u8,
    /// D: a server is dead from the start.
    pub(super) dead: u8,
    /// k: a server dies.
    pub(super) deaths: u8,
    /// z: a server freezes. It may thaw at any time.
    pub(super) freezes: u8,
    /// Z: a server is frozen from the start, for good.
    pub(super) frozen: u8,
    /// f: a server restarts without its data.
    pub(super) losses: u8,
    /// A: the clock of a server is far ahead from the start.
    pub(super) ahead: u8,
    /// R: a server refuses everything from the start.
    pub(super) refusals: u8,
}

impl Scope {
    /// Leaks the scope, because every state of a search refers to it. A test ends soon enough.
    pub(super) fn leaked(name: &'static str) -> &'static Self {
        let (clients, budget) = parsed(name, Terms::parse, Budget::of);
        Box::leak(Box::new(Self { name, clients, budget }))
    }

    pub(super) fn mode(&self, client: usize) -> Mode {
        self.clients[client].request.mode
    }

    /// Whether so many servers may be away that no client can have the lock.
    pub(super) fn may_fail(&self) -> bool {
        usize::from(self.budget.servers()) > SERVERS - majority(SERVERS)
    }

    /// Whether two clients can never hold the lock together.
    pub(super) fn exclude_each_other(&self, one: usize, other: usize) -> bool {
        self.mode(one) != self.mode(other) || self.mode(one) == Mode::Exclusive
    }
}

impl Budget {
    pub(super) fn of(&mut self, kind: &str) -> &mut u8 {
        match kind {
            "d" => &mut self.delays,
            "b" => &mut self.breaks,
            "c" => &mut self.crashes,
            "l" => &mut self.leaves,
            "D" => &mut self.dead,
            "k" => &mut self.deaths,
            "z" => &mut self.freezes,
            "Z" => &mut self.frozen,
            "f" => &mut self.losses,
            "A" => &mut self.ahead,
            "R" => &mut self.refusals,
            // Scopes are literals in tests, so only a mistaken test gets here.
            _ => panic!("unknown fault {kind}"),
        }
    }

    /// How many servers may fail.
    pub(super) fn servers(&self) -> u8 {
        let from_start = self.dead + self.frozen + self.ahead + self.refusals;
        from_start + self.deaths + self.freezes + self.losses
    }
}

impl Terms {
    fn parse(index: usize, word: &'static str) -> Self {
        let mode = mode_of(word);
        let has = |letter: char| word[1..].contains(letter);
        let (waits, renews, is_later) = (!has('n'), has('r'), has('t'));
        let ttl = ttl(TTL);
        let heartbeat = waits.then(|| heartbeat(Duration::from_millis(TTL)));
        let (next, supersedes) = (has('h'), has('u'));
        let request = Request { mode, ttl, heartbeat, next, supersedes, ..request(index, 0) };
        Self { word, waits, renews, is_later, tick: tick_of(word), request }
    }
}
