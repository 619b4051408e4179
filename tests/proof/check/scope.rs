//! What a search plays: which clients take part, and how often each fault may occur.

use std::time::Duration;

use super::time::{TICK, TICK_MILLIS};
use crate::values::ttl;
use rlock::rules::waiter::heartbeat;
use rlock::rules::{ClientInfo, Key, Kind, Mode, Owner, Request, Token};

/// The lease that clients ask for: three ticks less 1 ms, so that it ends between two ticks on the
/// server as well as with the client, and leaves no tick to spare.
pub(super) const TTL: u64 = 2_999;
/// A patient client's lease is three times as long, and so is its heartbeat.
const PATIENT_TTL: u64 = 8_999;
/// Long enough to outlast a lease.
const AT_LEAST: u64 = 3_999;

/// Less than a lease.
const WAIT_LIMIT: Duration = Duration::from_secs(2);

/// A scope, written as `x,x+ d1 b1`: the clients, and how often each fault may occur.
///
/// Clients are `x` (exclusive), `s` (shared) and `2` (two slots). `+` adds a second round, `a` is
/// for `--at-least`, `t` for a wait limit, `p` for a longer lease and heartbeat, `h` for `--next`
/// and `u` for `--supersede`. All clients with `o` have one owner and are reentrant. One with `i`
/// runs inside the command of the first client, and is reentrant. The clock of one with `l` loses
/// as much as the rules allow for, that of one with `g` gains it, and that of one with `L` loses
/// more.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) name: &'static str,
    pub(super) clients: Vec<Terms>,
    pub(super) budget: Budget,
}

/// What one client does.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) mode: Mode,
    pub(super) at_least: Duration,
    /// The longest that it waits.
    pub(super) wait_limit: Option<Duration>,
    /// Whether it names an owner, and may enter what that owner holds.
    pub(super) is_owned: bool,
    /// Whether it runs inside the command of the first client, and may enter its hold.
    pub(super) is_inner: bool,
    /// How far its clock gets in a second of the server.
    pub(super) tick: Duration,
    /// Its requests, one for each round.
    pub(super) requests: Vec<Request>,
}

/// How often each fault may still occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// d: a message crosses a tick.
    pub(super) delays: u8,
    /// b: a connection breaks, and what it carries is lost or arrives late.
    pub(super) breaks: u8,
    /// c: a client dies.
    pub(super) crashes: u8,
    /// l: a signal ends a wait.
    pub(super) leaves: u8,
    /// v: all holds are revoked.
    pub(super) revocations: u8,
    /// w: all holds are revoked at once, while all holders are dead.
    pub(super) removals: u8,
    /// g: the key is deleted.
    pub(super) deletions: u8,
    /// k: another tool writes the key.
    pub(super) foreign: u8,
    /// r: the server restarts with its data.
    pub(super) restarts: u8,
    /// f: the server restarts without its data.
    pub(super) losses: u8,
    /// F: the same, while every other client was told of all holders.
    pub(super) told_losses: u8,
    /// p: a client is paused.
    pub(super) pauses: u8,
    /// n: a client cannot reach the server for a while.
    pub(super) cuts: u8,
}

impl Scope {
    /// Panics like `parsed`.
    pub(super) fn parse(name: &'static str) -> Self {
        let (clients, budget) = parsed(name, Terms::parse, Budget::of);
        Self { name, clients, budget }
    }

    /// For a search, which refers to it from each state. A test ends soon enough.
    pub(super) fn leaked(name: &'static str) -> &'static Self {
        Box::leak(Box::new(Self::parse(name)))
    }

    pub(super) fn ttl(&self, client: usize) -> Duration {
        self.clients[client].requests[0].ttl.get()
    }

    /// How many ticks later than the others a client with a slow clock acts.
    pub(super) fn lag(&self) -> u8 {
        u8::from(self.clients.iter().any(|terms| terms.tick < TICK))
    }
}

impl Budget {
    pub(super) fn of(&mut self, kind: &str) -> &mut u8 {
        match kind {
            "d" => &mut self.delays,
            "b" => &mut self.breaks,
            "c" => &mut self.crashes,
            "l" => &mut self.leaves,
            "v" => &mut self.revocations,
            "w" => &mut self.removals,
            "g" => &mut self.deletions,
            "k" => &mut self.foreign,
            "r" => &mut self.restarts,
            "f" => &mut self.losses,
            "F" => &mut self.told_losses,
            "p" => &mut self.pauses,
            "n" => &mut self.cuts,
            // Scopes are literals in tests, so only a mistaken test gets here.
            _ => panic!("unknown fault {kind}"),
        }
    }

    /// Whether it matters when a client notices a reply or a message: what is under way may be
    /// delayed or lost, or a signal may come first.
    pub(super) fn is_patient(&self) -> bool {
        let Self { delays, breaks, leaves, restarts, losses, told_losses, pauses, cuts, .. } = self;
        [delays, breaks, leaves, restarts, losses, told_losses, pauses, cuts]
            .into_iter()
            .any(|left| *left > 0)
    }
}

impl Terms {
    /// Whether it goes ahead of those that do not.
    pub(super) fn is_next(&self) -> bool {
        self.requests[0].next
    }

    /// Whether it ends older requests that do so too.
    pub(super) fn supersedes(&self) -> bool {
        self.requests[0].supersedes
    }

    /// Whether it may enter another hold, past those who wait.
    pub(super) fn may_enter(&self) -> bool {
        self.is_owned || self.is_inner
    }

    /// Panics like `Scope::parse`.
    fn parse(index: usize, word: &str) -> Self {
        let mode = mode_of(word);
        let has = |letter: char| word[1..].contains(letter);
        let at_least = Duration::from_millis(if has('a') { AT_LEAST } else { 0 });
        let ttl = ttl(if has('p') { PATIENT_TTL } else { TTL });
        let rounds = if has('+') { 2 } else { 1 };
        let request = |round| Request {
            mode,
            ttl,
            at_least,
            owner: has('o').then(|| "owner".parse::<Owner>().expect("the literal is valid")),
            enclosing: if has('i') { vec![token(0, 0)] } else { Vec::new() },
            reentrant: has('o') || has('i'),
            next: has('h'),
            supersedes: has('u'),
            heartbeat: Some(heartbeat(ttl.get())),
            ..request(index, round)
        };
        let requests = (0..rounds).map(request).collect();
        let wait_limit = has('t').then_some(WAIT_LIMIT);
        let (is_owned, is_inner, tick) = (has('o'), has('i'), tick_of(word));
        Self { mode, at_least, wait_limit, is_owned, is_inner, tick, requests }
    }
}

/// Reads the name of a scope: its clients, and how often each fault may occur. Only the names in
/// this program are read, so a wrong one is a mistake in a test, which the panic fails.
pub(super) fn parsed<T, B: Default>(
    name: &'static str,
    client: fn(usize, &'static str) -> T,
    of: for<'a> fn(&'a mut B, &str) -> &'a mut u8,
) -> (Vec<T>, B) {
    let (clients, faults) = name.split_once(' ').unwrap_or((name, ""));
    let clients = clients.split(',').enumerate();
    let clients = clients.map(|(index, word)| client(index, word)).collect();
    let mut budget = B::default();
    for word in faults.split_whitespace() {
        let (kind, count) = word.split_at(1);
        *of(&mut budget, kind) = count.parse().expect("a test gives each fault a number");
    }
    (clients, budget)
}

/// The words of a scope's name that a state has not used up: clients that have not begun, and
/// faults of which some are left.
pub(super) fn unplayed<B>(
    name: &'static str,
    is_idle: impl Fn(usize) -> bool,
    mut left: B,
    of: for<'a> fn(&'a mut B, &str) -> &'a mut u8,
) -> Vec<&'static str> {
    let (clients, faults) = name.split_once(' ').unwrap_or((name, ""));
    let clients = clients.split(',').enumerate().filter(|(index, _)| is_idle(*index));
    let faults = faults.split_whitespace().filter(|word| *of(&mut left, &word[..1]) > 0);
    clients.map(|(_, word)| word).chain(faults).collect()
}

/// The mode of a client, which its first letter names. Panics like `parsed`.
pub(super) fn mode_of(word: &str) -> Mode {
    match &word[..1] {
        "x" => Mode::Exclusive,
        "s" => Mode::Shared,
        slots => Mode::Slots(slots.parse().expect("a test gives each client a mode")),
    }
}

/// How far the clock of a client gets in a second of the servers. Clocks may differ by 1 %.
pub(super) fn tick_of(word: &str) -> Duration {
    let millis = match () {
        () if word.contains('l') => TICK_MILLIS * 99 / 100,
        () if word.contains('L') => TICK_MILLIS * 989 / 1_000,
        () if word.contains('g') => TICK_MILLIS * 101 / 100,
        () => TICK_MILLIS,
    };
    Duration::from_millis(millis)
}

/// A token of no client.
pub(super) fn stranger() -> Token {
    Token::recorded("z0000000-token").expect("the literal is valid")
}

/// The token says whose it is: `a1000000-token` is that of the second round of the first client,
/// and `a1000000` is its ID. Its form is always valid.
fn token(client: usize, round: u8) -> Token {
    let client = char::from(b'a' + client as u8);
    Token::recorded(&format!("{client}{round}000000-token")).unwrap()
}

pub(super) fn request(client: usize, round: u8) -> Request {
    let token = token(client, round);
    let key = Key::new(&"".parse().unwrap(), &"L".parse().unwrap());
    // The names below are constants, or made of valid tokens.
    Request {
        // Its last characters make a lock's generation.
        fresh_owner: format!("life-{}", token.id()).parse().unwrap(),
        token,
        client: ClientInfo { kind: Kind::Exec, ..ClientInfo::default() }.to_lines(),
        ..Request::plain(key, ttl(TTL))
    }
}

/// Whose token or ID this is: the client, the round, and whether it is a whole token.
pub(super) fn whose(token: &str) -> (usize, u8, bool) {
    // `token` has made it.
    let [client, round, ..] = token.as_bytes() else { panic!("unknown token {token:?}") };
    (usize::from(client - b'a'), round - b'0', token.len() > 8)
}
