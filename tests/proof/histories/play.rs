//! The player: does what the clients do, both on a server and in the model.

use std::collections::HashMap;
use std::time::Duration;

use super::test_clock::{BATCH, TestClock};
use crate::support::Server;
use crate::values;
use rlock::rules::model::lock::{Guard, Lock};
use rlock::rules::model::transaction::Transaction;
use rlock::rules::{
    Answer, ClientInfo, Fence, Key, Kind, Label, Mode, Outcome, Owner, Proposal, QuorumOp, Reason,
    Release, Renewal, Request, Revocation, Seen, Slot, Ticket, Token, Verdict,
};
use rlock::store::Store;
use rlock::store::server::RedisStore;

/// The time at which a history starts, so far ahead that no key expires by the server's own clock.
const START: u64 = 4_000_000_000_000;

/// What happens next. Numbers stand for clients and owners.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Ask(Ask),
    Renew(u8, Option<u64>),
    Release(u8, Option<u8>),
    /// Late requests were under way when the client released its lock, or gave up its request.
    AskLate(Ask),
    RenewLate(u8, Option<u64>),
    ReleaseLate(u8),
    LeaveLate(u8),
    Leave(u8),
    /// Leaves because the lock is busy.
    GiveUp(u8),
    /// Gives up a request before that request arrives: the token is not known yet.
    LeaveEarly(u8),
    /// How many of the latest holds the caller has not seen.
    Revoke(Revocation, u8),
    /// Takes a client out of the lock.
    Remove(u8, Revocation),
    Pass(u64),
    /// Another tool writes the key, with or without an expiry.
    Write(Option<u64>),
    /// Another tool deletes the key.
    Delete,
    /// A side key is lost, as if it had been evicted.
    Lose(SideKey),
    /// The server loses all its data.
    Forget,
}

/// A key beside the guard, named as in `lua/lock.lua`.
#[derive(Clone, Copy, Debug)]
pub(super) enum SideKey {
    Holds,
    Queue,
    History,
    Tombstones,
}

#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) client: u8,
    pub(super) mode: Mode,
    pub(super) ttl: u64,
    pub(super) at_least: u64,
    pub(super) heartbeat: Option<u64>,
    pub(super) owner: Option<u8>,
    pub(super) enclosing: Vec<u8>,
    pub(super) reentrant: bool,
    pub(super) next: bool,
    pub(super) supersedes: bool,
    /// How many milliseconds the ticket of one that supersedes is ahead of the clock.
    pub(super) arrival: Option<i64>,
    /// How many milliseconds the wanted fence is ahead of the clock, and the number of the wanted
    /// slot.
    pub(super) held: Option<(i64, Option<Slot>)>,
    /// Whether this is one of several servers; and how many milliseconds the agreed ticket is ahead
    /// of the clock, if there is one.
    pub(super) ticket: Option<Option<i64>>,
    /// Whether it reminds the server of the holders in the last reply.
    pub(super) reminds: bool,
    /// How many later requests of this client were sent first: it is a duplicate, or was overtaken.
    pub(super) overtaken: u64,
    pub(super) kind: Kind,
}

/// An exclusive request that does not wait.
pub(super) fn plain_ask() -> Ask {
    Ask {
        client: 0,
        mode: Mode::Exclusive,
        ttl: 100,
        at_least: 0,
        heartbeat: None,
        owner: None,
        enclosing: Vec::new(),
        reentrant: false,
        next: false,
        supersedes: false,
        arrival: None,
        held: None,
        ticket: None,
        reminds: false,
        overtaken: 0,
        kind: Kind::Exec,
    }
}

impl Ask {
    pub(super) fn request(&self, key: &Key, tokens: &Tokens, now: u64) -> Request {
        let owner = |owner: u8| format!("owner-{owner}").parse::<Owner>().unwrap();
        let client = ClientInfo {
            pid: u32::from(self.client),
            kind: self.kind,
            label: Some("label".parse::<Label>().unwrap()),
            ..ClientInfo::default()
        };
        Request {
            token: tokens.present(self.client),
            mode: self.mode,
            at_least: Duration::from_millis(self.at_least),
            heartbeat: self.heartbeat.map(Duration::from_millis),
            owner: self.owner.map(owner),
            // Its last characters must be unique, like those of a random one.
            fresh_owner: format!("fresh-{}", &tokens.present(self.client).as_str()[..8])
                .parse()
                .unwrap(),
            enclosing: self.enclosing.iter().map(|client| tokens.present(*client)).collect(),
            reentrant: self.reentrant,
            next: self.next,
            supersedes: self.supersedes,
            arrival: self
                .arrival
                .map(|ahead| Ticket((now * 1_000).saturating_add_signed(ahead * 1_000))),
            client: client.to_lines(),
            quorum_op: self.quorum_op(now),
            ..Request::plain(key.clone(), values::ttl(self.ttl))
        }
    }

    fn quorum_op(&self, now: u64) -> Option<QuorumOp> {
        let micros = |ahead: i64| (now * 1_000).saturating_add_signed(ahead * 1_000);
        let held = self.held.map(|(ahead, slot)| (Fence(micros(ahead)), slot));
        let ticket = self.ticket.map(|ticket| ticket.map(|ahead| Ticket(micros(ahead))));
        match (ticket, held) {
            (Some(ticket), Some(held)) => Some(QuorumOp::Commit(ticket, held)),
            (Some(ticket), None) => Some(QuorumOp::Propose(ticket)),
            (None, Some(held)) => Some(QuorumOp::Restore(held)),
            (None, None) => None,
        }
    }
}

/// The present token of each client, which uses a new one after each release.
#[derive(Default)]
pub(super) struct Tokens([u16; 6]);

impl Tokens {
    pub(super) fn present(&self, client: u8) -> Token {
        Self::name(client, self.0[usize::from(client)])
    }

    fn former(&self, client: u8) -> Token {
        Self::name(client, self.0[usize::from(client)].saturating_sub(1))
    }

    fn name(client: u8, number: u16) -> Token {
        Token::recorded(&format!("{client}-{number:06}-of-a-hold")).unwrap()
    }

    fn used_up(&mut self, client: u8) {
        self.0[usize::from(client)] += 1;
    }
}

/// Starts a server for one test.
pub(super) fn on_a_server(test: impl FnOnce(&mut RedisStore<TestClock>)) {
    let server = Server::start();
    test(&mut TestClock::store(&server.url()));
}

/// A lock on a server and in the model, and the time that both use.
pub(super) struct Both<'a> {
    pub(super) server: &'a mut RedisStore<TestClock>,
    pub(super) key: Key,
    pub(super) model: Lock,
    pub(super) now: u64,
    seen: Vec<Seen>,
    /// Whether the holds or the queue were lost. The server still has details of the tokens, so it
    /// recognizes a duplicate of a request. The model does not, so none is sent.
    has_remains: bool,
    pub(super) tokens: Tokens,
    /// What each client asks for until it releases it. A repeated request is the same request.
    asked: [Option<Ask>; 6],
    /// Whether the requests of a token are to one of several servers.
    parts: HashMap<String, bool>,
    /// How many requests each client has sent.
    attempts: [u64; 6],
}

impl<'a> Both<'a> {
    pub(super) fn new(server: &'a mut RedisStore<TestClock>) -> Self {
        let key = Key::new(&"rlock:".parse().unwrap(), &"L".parse().unwrap());
        let mut both = Self {
            server,
            key,
            model: Lock::default(),
            now: START,
            seen: Vec::new(),
            has_remains: false,
            tokens: Tokens::default(),
            asked: Default::default(),
            parts: HashMap::new(),
            attempts: [0; 6],
        };
        both.send(&["FLUSHALL"]);
        both.tell_the_time();
        both
    }

    fn send(&mut self, words: &[&str]) {
        self.server.topology.send(words);
    }

    /// The model at this time, for one request.
    fn model(&mut self) -> Transaction<'_> {
        let mut model = self.model.at(self.now);
        model.batch = BATCH;
        model
    }

    fn tell_the_time(&mut self) {
        let now = self.now.to_string();
        self.send(&["SET", "test:now", &now]);
    }

    pub(super) fn ask(&mut self, request: &Request, attempt: u64, seen: &[Seen]) -> Verdict {
        let verdict = self.server.ask(request, attempt, seen, None).unwrap();
        assert_eq!(verdict, self.model().acquire(request, attempt, seen));
        verdict
    }

    /// The ticket for this request. Either all requests of a token are to one of several servers,
    /// or none.
    fn ticket(&mut self, token: &Token, ask: &Ask) -> Option<Option<i64>> {
        let is_part = self.parts.entry(token.as_str().to_owned()).or_insert(ask.ticket.is_some());
        is_part.then(|| ask.ticket.flatten())
    }

    fn agree_on_release(&self, reply: &Release, expected: &Release) {
        match (reply, expected) {
            (Release::NotHeld(told), Release::NotHeld(known)) => self.agree(told, known),
            _ => assert_eq!(reply, expected),
        }
    }

    /// A server that has lost the holds still has details of them, so it knows that they are
    /// forgotten. The model has nothing left of them. Users read the same text.
    fn agree(&self, told: &Reason, known: &Reason) {
        if self.has_remains && !known.is_known() {
            assert_eq!(told.to_string(), known.to_string());
        } else {
            assert_eq!(told, known);
        }
    }

    pub(super) fn play(&mut self, step: &Step) {
        let (key, now) = (self.key.clone(), self.now);
        match step {
            Step::Ask(new) => {
                let client = usize::from(new.client);
                let ticket = self.ticket(&self.tokens.present(new.client), new);
                let asked = self.asked[client].get_or_insert_with(|| new.clone());
                let (reminds, arrival, held) = (new.reminds, new.arrival, new.held);
                let ask = &Ask { reminds, arrival, held, ticket, ..asked.clone() };
                let request = ask.request(&key, &self.tokens, now);
                let seen = if ask.reminds { self.seen.clone() } else { Vec::new() };
                self.attempts[client] += 1;
                let overtaken = if self.has_remains { 0 } else { new.overtaken };
                let attempt = self.attempts[client].saturating_sub(overtaken);
                let verdict = self.ask(&request, attempt, &seen);
                if let Verdict::Answer(Answer::Queued { view, .. } | Answer::Busy(view))
                | Verdict::Proposed(Proposal { view, .. }) = verdict
                {
                    let seen = view.holders.into_iter().map(|holder| {
                        let left = Duration::from_millis(500);
                        Seen { holder, left, generation: view.generation.clone() }
                    });
                    self.seen = seen.collect();
                }
            }
            Step::AskLate(_) if self.has_remains => {}
            Step::AskLate(ask) => {
                let client = usize::from(ask.client);
                let token = self.tokens.former(ask.client);
                let is_former = token != self.tokens.present(ask.client);
                let ask = match is_former {
                    true => ask,
                    // It is the same request as any other with this token.
                    false => self.asked[client].get_or_insert_with(|| ask.clone()),
                }
                .clone();
                let ask = Ask { ticket: self.ticket(&token, &ask), ..ask };
                let request = Request { token, ..ask.request(&key, &self.tokens, now) };
                self.ask(&request, self.attempts[client], &[]);
            }
            Step::Renew(client, ttl) | Step::RenewLate(client, ttl) => {
                let token = match step {
                    Step::RenewLate(..) => self.tokens.former(*client),
                    _ => self.tokens.present(*client),
                };
                let ttl = ttl.map(values::ttl);
                let reply = self.server.renew(&key, &token, ttl, None).unwrap();
                let expected = self.model().renew(&token, ttl);
                match (&reply, &expected) {
                    (Renewal::NotHeld(told), Renewal::NotHeld(known)) => self.agree(told, known),
                    _ => assert_eq!(reply, expected),
                }
            }
            Step::Release(client, exit) => {
                let token = self.tokens.present(*client);
                let outcome = exit.map_or(Outcome::Lost, Outcome::Exit);
                let reply = self.server.release(&key, &token, outcome).unwrap();
                let expected = self.model().release(&token, outcome);
                self.agree_on_release(&reply, &expected);
                self.tokens.used_up(*client);
                self.asked[usize::from(*client)] = None;
            }
            Step::ReleaseLate(client) => {
                let token = self.tokens.former(*client);
                let reply = self.server.release(&key, &token, Outcome::Unknown).unwrap();
                let expected = self.model().release(&token, Outcome::Unknown);
                self.agree_on_release(&reply, &expected);
            }
            Step::Leave(client)
            | Step::GiveUp(client)
            | Step::LeaveLate(client)
            | Step::LeaveEarly(client) => {
                let token = match step {
                    Step::LeaveLate(_) => self.tokens.former(*client),
                    _ => self.tokens.present(*client),
                };
                let request =
                    Ask { client: *client, ..plain_ask() }.request(&key, &self.tokens, now);
                let is_skipped = matches!(step, Step::GiveUp(_));
                let request = Request { token, is_skipped, ..request };
                self.server.leave(&request).unwrap();
                self.model().leave(&request.token, request.ttl, is_skipped);
                // After an early one, the client keeps asking with a token that is over.
                if let Step::Leave(_) | Step::GiveUp(_) = step {
                    self.tokens.used_up(*client);
                    self.asked[usize::from(*client)] = None;
                }
            }
            Step::Revoke(revocation, unseen) => {
                let mut fences: Vec<u64> = self.model.holds.iter().map(|hold| hold.fence).collect();
                fences.sort_unstable();
                let seen = fences.len().checked_sub(usize::from(*unseen) + 1);
                let up_to = Fence(seen.map_or(self.model.fence, |last| fences[last]));
                let by = "someone";
                let reply = self.server.revoke_up_to(&key, Some(up_to), *revocation, by).unwrap();
                assert_eq!(reply.0, self.model().revoke(up_to, *revocation, by));
            }
            Step::Remove(client, revocation) => {
                let id = self.tokens.present(*client).id().parse().unwrap();
                let by = "someone\tfor a reason";
                let reply = self.server.remove(&key, &id, *revocation, by).unwrap();
                assert_eq!(reply, self.model().remove(&id, *revocation, by));
            }
            Step::Pass(time) => {
                self.now += time;
                self.tell_the_time();
            }
            Step::Write(ttl) => {
                let until = ttl.map(|ttl| now + ttl);
                self.send(&["SET", key.as_str(), "theirs"]);
                match until {
                    Some(until) => self.send(&["SET", "test:until", &until.to_string()]),
                    None => self.send(&["DEL", "test:until"]),
                }
                self.model.guard = Some(Guard { value: "theirs".into(), until });
            }
            Step::Delete => {
                self.send(&["DEL", key.as_str()]);
                self.model.guard = None;
            }
            Step::Lose(side_key) => {
                let (name, model) = (key.as_str(), &mut self.model);
                let lost = match side_key {
                    SideKey::Holds => {
                        // A holder that loses its hold ends. It does not ask again.
                        for client in 0..6_u8 {
                            let token = self.tokens.present(client);
                            if model.holds.iter().any(|hold| hold.token == token.as_str()) {
                                self.tokens.used_up(client);
                                self.asked[usize::from(client)] = None;
                            }
                        }
                        model.holds.clear();
                        self.has_remains = true;
                        "holds"
                    }
                    SideKey::Queue => {
                        model.queue.clear();
                        self.has_remains = true;
                        "queue"
                    }
                    SideKey::History => {
                        model.history.clear();
                        "history"
                    }
                    SideKey::Tombstones => {
                        model.tombstones.clear();
                        "tombstones"
                    }
                };
                self.send(&["DEL", &format!("{{{name}}}?{lost}")]);
            }
            Step::Forget => {
                self.send(&["FLUSHALL"]);
                self.tell_the_time();
                self.model = Lock::default();
            }
        }
        // As `local:` does between two requests. The messages are not stored.
        let stored = serde_json::to_vec(&self.model).unwrap();
        let mail = std::mem::take(&mut self.model.mail);
        self.model = Lock { mail, ..serde_json::from_slice(&stored).unwrap() };
        assert_eq!(self.server.inspect(&key).unwrap(), self.model.inspect(self.now));
    }
}
