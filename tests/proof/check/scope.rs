//! What a search plays: which clients take part, and how often each fault may occur.

use std::time::Duration;

use super::action::Faults;
use super::time::TICK;
use crate::values::ttl;
use rlock::rules::waiter::heartbeat;
use rlock::rules::{ClientInfo, HoldKind, Key, Mode, Owner, Request, Token};

/// The lease that clients ask for: three ticks less 1 ms, so that it ends between two ticks on the
/// server as well as with the client, and leaves no tick to spare.
const TTL: u64 = 2_999;
/// A patient client's lease is three times as long, and so is its heartbeat.
const PATIENT_TTL: u64 = 8_999;
/// Long enough to outlast a lease.
const AT_LEAST: u64 = 3_999;

/// A scope, written as `x,xw d1 b1`: the clients, and how often each fault may occur.
///
/// Clients are `x` (exclusive), `s` (shared) and `2` (two slots). `h` is for `--next`, `u` for
/// `--supersede`. The clock of one with `l` loses as much as the rules allow for, that of one with
/// `g` gains it, and that of one with `L` loses more. One with `d` was started inside the command of the
/// first client, and is not reentrant.
///
/// With one server, `a` is for `--at-least`, `w` for a wait limit, and `p` for a longer lease and
/// heartbeat. All clients with `o` have one owner and are reentrant. One
/// with `i` runs inside the command of the first client, and is reentrant.
///
/// With a quorum, one with `n` does not wait, one with `r` renews its lease, and one with `t` begins
/// only after the client before it had the lock.
///
/// The `FAULTS` of a world list the letters of its faults. With a capital letter, a fault is there
/// from the start.
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
    pub(super) mode: Mode,
    /// How far its clock gets in a second of the servers.
    pub(super) tick: Duration,
    pub(super) request: Request,
}

/// How often each fault may still occur, from A to z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Budget([u8; 58]);

impl Scope {
    /// Reads a scope from its name. Only the names in this program are read, so a wrong one is a
    /// mistake in a test, which the panic fails.
    ///
    /// Leaks the scope, because every state of a search refers to it. A test ends soon enough.
    pub(super) fn leaked(name: &'static str, known: Faults) -> &'static Self {
        let (clients, faults) = name.split_once(' ').unwrap_or((name, ""));
        let clients = clients.split(',').enumerate();
        let clients = clients.map(|(index, word)| Terms::parse(index, word)).collect();
        let mut budget = Budget([0; 58]);
        for word in faults.split_whitespace() {
            let (letter, count) = word.split_at(1);
            let fault = known.iter().find(|(known, _)| letter.contains(*known));
            let (letter, _) = fault.unwrap_or_else(|| panic!("unknown fault {letter}"));
            budget.0[Budget::index(*letter)] =
                count.parse().expect("a test gives each fault a number");
        }
        Box::leak(Box::new(Self { name, clients, budget }))
    }

    pub(super) fn ttl(&self, client: usize) -> Duration {
        self.clients[client].request.ttl.get()
    }

    /// How many ticks later than the others a client with a slow clock acts.
    pub(super) fn lag(&self) -> u8 {
        u8::from(self.clients.iter().any(|terms| terms.tick < TICK))
    }

    /// Whether a client differs only in its token from the one before.
    pub(super) fn is_like_the_one_before(&self, client: usize) -> bool {
        client > 0 && self.clients[client].word == self.clients[client - 1].word
    }

    /// Whether two clients can never hold the lock together.
    pub(super) fn exclude_each_other(&self, one: usize, other: usize) -> bool {
        let (first, one, other) = (one.min(other), &self.clients[one], &self.clients[other]);
        let both = |letter| one.has(letter) && other.has(letter);
        let nested = first == 0 && (one.has('i') || other.has('i'));
        let same_owner = nested || both('o') || both('i');
        !same_owner && (one.mode != other.mode || one.mode == Mode::Exclusive)
    }
}

impl Budget {
    fn index(letter: char) -> usize {
        letter as usize - 'A' as usize
    }

    pub(super) fn of(&self, letter: char) -> u8 {
        self.0[Self::index(letter)]
    }

    /// How often faults with one of these letters may still occur.
    pub(super) fn of_all(&self, letters: &str) -> u8 {
        letters.chars().map(|letter| self.of(letter)).sum()
    }

    pub(super) fn use_up(&mut self, letter: char, count: u8) {
        self.0[Self::index(letter)] -= count;
    }
}

impl Terms {
    pub(super) fn has(&self, letter: char) -> bool {
        self.word[1..].contains(letter)
    }

    /// Whether it goes ahead of those that do not.
    pub(super) fn is_next(&self) -> bool {
        self.has('h')
    }

    /// Whether it ends older requests that do so too.
    pub(super) fn supersedes(&self) -> bool {
        self.has('u')
    }

    /// Whether it may enter another hold, past those who wait.
    pub(super) fn may_enter(&self) -> bool {
        self.has('o') || self.has('i')
    }

    /// Panics like `Scope::leaked`.
    fn parse(index: usize, word: &'static str) -> Self {
        let mode = match &word[..1] {
            "x" => Mode::Exclusive,
            "s" => Mode::Shared,
            slots => Mode::Slots(slots.parse().expect("a test gives each client a mode")),
        };
        let has = |letter: char| word[1..].contains(letter);
        let ttl = ttl(if has('p') { PATIENT_TTL } else { TTL });
        // Clocks may differ by 1 %.
        let gain = if has('g') { 10 } else { 0 };
        let loss = if has('l') { 10 } else { 0 } + if has('L') { 11 } else { 0 };
        let tick = TICK + Duration::from_millis(gain) - Duration::from_millis(loss);
        // Its last characters make a lock's generation.
        let fresh_owner = format!("life-{}", token(index).id()).parse().unwrap();
        let request = Request {
            mode,
            ttl,
            at_least: Duration::from_millis(if has('a') { AT_LEAST } else { 0 }),
            owner: has('o').then(|| "owner".parse::<Owner>().expect("the literal is valid")),
            enclosing: if has('i') || has('d') { vec![token(0)] } else { Vec::new() },
            reentrant: has('o') || has('i'),
            next: has('h'),
            supersedes: has('u'),
            heartbeat: (!has('n')).then(|| heartbeat(ttl.get())),
            client: ClientInfo { kind: HoldKind::Exec, ..ClientInfo::default() },
            ..Request::plain(key(), token(index), fresh_owner, ttl)
        };
        Self { word, mode, tick, request }
    }
}

/// A token of no client.
pub(super) fn stranger() -> Token {
    token(15)
}

/// The token says whose it is: that of the first client begins with `00000000`, which is its ID. Its
/// form is always valid.
fn token(client: usize) -> Token {
    format!("{client:x}0000000-0000-4000-8000-000000000000").parse().unwrap()
}

/// The lock that all of them ask for.
pub(super) fn key() -> Key {
    Key::new(&"".parse().unwrap(), &"L".parse().unwrap())
}

/// The client whose token or ID this is. `token` has made it.
pub(super) fn whose(token: &str) -> usize {
    usize::from_str_radix(&token[..1], 16).unwrap()
}

/// Whether this is a token, and not the name of the hold of a closed lock.
pub(super) fn is_whole(token: &str) -> bool {
    token.len() > 8
}
