//! The player: does what the clients do, both on a server and in the model.

use std::collections::HashMap;
use std::fmt::Debug;
use std::mem;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use super::expiry::Kept;
use super::step::{Ask, CLIENTS, Step, Tokens, plain_ask};
use crate::scripts::agreement;
use crate::scripts::redis::{Data, Entry, Keys};
use crate::scripts::shim::{BATCH, Server, Shim, StoreOn};
use crate::scripts::stored;
use crate::values;
use rlock::rules::model::lock::{Guard, Lock};
use rlock::rules::model::transaction::Transaction;
use rlock::rules::quorum::{Proposal, QuorumOp, Vote};
use rlock::rules::{
    Answer, Ending, Failure, Fence, Key, Operator, Owner, Reason, Release, Renewal, Request, Seen,
    Stored, Token, Verdict, View,
};
use rlock::store::{Force, NEVER, Store};
use sha1_smol::Sha1;

/// The time at which a history starts, so far ahead that no key expires by the server's own clock.
pub(super) const START: u64 = 4_000_000_000_000;

/// A lock on a server and in the model, and the time that both use.
pub(super) struct Both<'a, S = Shim> {
    pub(super) server: &'a mut StoreOn<S>,
    pub(super) key: Key,
    pub(super) model: Lock,
    pub(super) now: u64,
    /// The holders in the last reply to each client.
    pub(super) seen: [Option<Seen>; CLIENTS as usize],
    /// The largest fence so far.
    largest: u64,
    /// The reply to the last request of the lock.
    pub(super) verdict: Vote,
    /// Whether the holds or the queue were lost. The server still has details of the tokens, so it
    /// recognizes a duplicate of a request. The model does not, so none is sent.
    has_remains: bool,
    pub(super) tokens: Tokens,
    /// What each client asks for until it releases it. A repeated request is the same request.
    asked: [Option<Ask>; CLIENTS as usize],
    /// Whether the requests of a token are to one of several servers.
    parts: HashMap<String, bool>,
    /// How many requests each client has sent.
    attempts: [u64; CLIENTS as usize],
    steps: u32,
    /// Whether the step is that of a client that has released its lock or given up its request.
    is_late: bool,
    /// Whether other tools have damaged the keys, so that the model does not apply.
    is_damaged: bool,
    /// The tokens of the waiters to which a message was sent, in order.
    pub(super) woken: Vec<String>,
    pub(super) kept: Kept,
    replica: Option<Replica>,
}

/// What a replica that lags has of the server and of the model.
struct Replica {
    keys: Keys,
    model: Lock,
    has_remains: bool,
    is_damaged: bool,
    kept: Kept,
}

impl<'a, S: Server> Both<'a, S> {
    pub(super) fn new(server: &'a mut StoreOn<S>) -> Self {
        let key = Key::new(&"rlock:".parse().unwrap(), &"L".parse().unwrap());
        let mut both = Self {
            server,
            key,
            model: Lock::default(),
            now: START,
            seen: [const { None }; CLIENTS as usize],
            largest: 0,
            verdict: Break(Verdict::Again),
            has_remains: false,
            tokens: Tokens::default(),
            asked: [const { None }; CLIENTS as usize],
            parts: HashMap::new(),
            attempts: [0; CLIENTS as usize],
            steps: 0,
            is_late: false,
            is_damaged: false,
            woken: Vec::new(),
            kept: Kept::default(),
            replica: None,
        };
        both.server.topology.0.fill(false);
        both.send(&["FLUSHALL"]);
        both.pass_to(START);
        both
    }

    pub(super) fn send(&mut self, words: &[&str]) {
        self.server.topology.0.send(words);
    }

    /// Compares what the last call has done, besides its reply.
    pub(super) fn compare(&mut self) {
        if self.is_damaged {
            return;
        }
        if self.has_remains {
            // The server still knows how long the leases lasted that are lost.
            self.model.tombstones =
                Shim::redis(|redis| stored::tombstones(redis.home(), &self.key));
        }
        let differences = agreement::differences(&self.model, &self.key, self.now);
        assert!(differences.is_empty(), "{differences:#?}");
        self.kept.check(&self.key, &self.model, self.now);
        self.woken.extend(mem::take(&mut self.model.mail).into_iter().map(|mail| mail.token));
    }

    /// The model at this time, for one request.
    fn model(&mut self) -> Transaction<'_> {
        let mut model = self.model.at(self.now);
        model.batch = BATCH;
        model
    }

    fn pass_to(&mut self, now: u64) {
        self.now = now;
        self.server.topology.0.set_time(now);
    }

    pub(super) fn inspect(&mut self) -> View {
        let told = self.server.inspect(&self.key);
        self.same(told, self.model.inspect(self.now))
    }

    pub(super) fn ask(&mut self, request: &Request, op: Option<QuorumOp>, attempt: u64) {
        let (told, known) = match op {
            None => (
                self.server.ask(request, attempt, NEVER).map(Break),
                Break(self.model().acquire(request, attempt)),
            ),
            Some(op) => {
                (self.server.vote(request, op, attempt), self.model().vote(request, op, attempt))
            }
        };
        self.verdict = match self.is_damaged {
            true => told.unwrap_or(Break(Verdict::Again)),
            false => self.same(told, known),
        };
    }

    /// The server and the model have only what the replica has.
    fn go_back(&mut self, replica: Replica) {
        let now = self.now;
        self.send(&["FLUSHALL"]);
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        for (key, Entry { data, until }) in &replica.keys {
            // The others expire in this millisecond at the latest.
            if until.is_some_and(|until| until <= now) {
                continue;
            }
            let (command, words) = match data {
                Data::Text(value) => ("SET", vec![text(value)]),
                Data::Hash(fields) => (
                    "HSET",
                    fields.iter().flat_map(|(field, it)| [text(field), text(it)]).collect(),
                ),
                Data::List(values) => ("RPUSH", values.iter().map(text).collect()),
                Data::Zset(members) => {
                    let pair = |(score, member): &(i64, Vec<u8>)| [score.to_string(), text(member)];
                    ("ZADD", members.iter().flat_map(pair).collect())
                }
            };
            let (key, until) = (text(key), until.map(|until| until.to_string()));
            for words in words.chunks(if command == "ZADD" { 2 } else { words.len() }) {
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                self.send(&[&[command, &*key], &*words].concat());
            }
            until.iter().for_each(|until| self.send(&["PEXPIREAT", &key, until]));
        }
        // What it pushed was pushed before.
        Shim::redis(|redis| redis.pushed.clear());
        self.model = replica.model;
        self.model.guard.take_if(|guard| guard.until.is_some_and(|until| until <= now));
        (self.has_remains, self.is_damaged) = (replica.has_remains, replica.is_damaged);
        self.kept = replica.kept;
    }

    fn token(&self, client: u8) -> Token {
        if self.is_late { self.tokens.former(client) } else { self.tokens.present(client) }
    }

    /// From now on, the client uses another token.
    fn ends(&mut self, client: u8) {
        if !self.is_late {
            self.tokens.used_up(client);
            self.asked[usize::from(client)] = None;
        }
    }

    /// The ticket for this request. Either all requests of a token are to one of several servers,
    /// or none.
    fn ticket(&mut self, token: &Token, ask: &Ask) -> Option<Option<i64>> {
        let is_part = self.parts.entry(token.as_str().to_owned()).or_insert(ask.ticket.is_some());
        is_part.then(|| ask.ticket.flatten())
    }

    /// The reply of the model, which is that of the server too, unless other tools have damaged its
    /// keys.
    fn same<R: PartialEq + Debug>(&self, told: Result<R, Failure>, known: R) -> R {
        if !self.is_damaged {
            assert_eq!(told.unwrap(), known);
        }
        known
    }

    /// As `same`. A server that has lost the holds still has details of them, so it knows that they
    /// are forgotten. The model has nothing left of them.
    fn same_end<R: PartialEq + Debug>(&self, told: Result<R, Failure>, known: R, forgotten: R) {
        if !(self.has_remains && told.as_ref().is_ok_and(|told| *told == forgotten)) {
            self.same(told, known);
        }
    }

    pub(super) fn play(&mut self, step: &Step) {
        let (key, now) = (self.key.clone(), self.now);
        let asks_replica = step.is_call() && self.steps % 4 == 1;
        Shim::redis(|redis| redis.asks_replica = asks_replica);
        let forgotten = Reason::new(Some(Ending::Forgotten), None, Operator::default());
        match step {
            Step::Late(step) => {
                self.is_late = true;
                self.play(step);
                self.is_late = false;
                return;
            }
            Step::InFullMemory(step) => {
                self.is_damaged |= !step.needs_no_memory();
                self.server.topology.0.fill(true);
                self.play(step);
                self.server.topology.0.fill(false);
                return;
            }
            Step::Ask(_) if self.is_late && self.has_remains => {}
            Step::Ask(new) => {
                let (client, token) = (usize::from(new.client), self.token(new.client));
                let ticket = self.ticket(&token, new);
                let asked = match token == self.tokens.present(new.client) {
                    // It is the same request as any other with this token.
                    true => self.asked[client].get_or_insert_with(|| new.clone()),
                    false => new,
                };
                let (reminds, arrival, held) = (new.reminds, new.arrival, new.held);
                let ask = &Ask { reminds, arrival, held, ticket, ..asked.clone() };
                let mut request = ask.request(&key, token, &self.tokens, now);
                request.seen = self.seen[client]
                    .clone()
                    .zip(ask.reminds)
                    .map(|(seen, left)| Seen { left: Duration::from_millis(left), ..seen });
                self.attempts[client] += u64::from(!self.is_late);
                let overtaken = if self.has_remains { 0 } else { new.overtaken };
                let op = ask.quorum_op(now);
                self.ask(&request, op, self.attempts[client].saturating_sub(overtaken));
                if let Continue(Proposal { view, .. })
                | Break(Verdict::Answer(Answer::Queued { view, .. } | Answer::Busy(view))) =
                    &self.verdict
                {
                    self.seen[client] = seen_in(view);
                }
            }
            Step::Renew(client, ttl) => {
                let (token, ttl) = (self.token(*client), ttl.map(values::ttl));
                let told = self.server.renew(&key, &token, ttl, NEVER);
                let known = self.model().renew(&token, ttl);
                self.same_end(told, known, Renewal::NotHeld(forgotten));
            }
            Step::Release(client, outcome) => {
                let token = self.token(*client);
                let told = self.server.release(&key, &token, *outcome);
                let known = self.model().release(&token, *outcome);
                self.same_end(told, known, Release::NotHeld(forgotten));
                self.ends(*client);
            }
            Step::Leave(client, _) | Step::LeaveEarly(client) => {
                let (token, ttl) = (self.token(*client), values::ttl(100));
                let is_skipped = matches!(step, Step::Leave(_, true));
                let owner = Owner::new([0; 16]);
                let plain = Request::plain(key.clone(), token.clone(), owner, ttl);
                let told = self.server.withdraw(&Request { is_skipped, ..plain }, NEVER);
                self.model().leave(&token, ttl, is_skipped);
                self.same(told, ());
                // After an early one, the client keeps asking with a token that is over.
                if let Step::Leave(..) = step {
                    self.ends(*client);
                }
            }
            Step::Revoke(revocation, unseen) => {
                let mut fences: Vec<u64> = self.model.holds.iter().map(|hold| hold.fence).collect();
                fences.sort_unstable();
                let seen = fences.len().checked_sub(usize::from(*unseen) + 1);
                let up_to = seen.map_or(self.model.fence, |last| fences[last]);
                let up_to = Fence(if self.is_late { self.largest } else { up_to });
                let by = &Operator { name: Some("someone".into()), reason: None };
                let told = self.server.revoke_up_to(&key, Some(up_to), *revocation, by);
                let known = self.model().revoke(up_to, *revocation, by);
                self.same(told.map(|told| told.0), known);
            }
            Step::Remove(client, revocation) => {
                let id = self.token(*client).id().parse().unwrap();
                let by = Operator::from_stored("someone\tfor a reason");
                let force = Force { how: *revocation, by };
                let told = self.server.remove(&key, &id, &force);
                let known = self.model().remove(&id, force.how, &force.by);
                self.same(told, known);
            }
            Step::Pass(time) => self.pass_to(now + time),
            Step::PassTo(which, more) => {
                let holds = self.model.holds.iter();
                let ends = holds.flat_map(|hold| [hold.deadline, hold.keep_until]);
                let ends = ends.chain(self.model.queue.iter().map(|waiter| waiter.alive));
                let mut ends: Vec<u64> = ends.filter(|end| *end >= now).collect();
                ends.sort_unstable();
                if let Some(end) = ends.get(usize::from(*which)) {
                    self.pass_to(end + u64::from(*more));
                }
            }
            Step::Occupy(name) => {
                self.is_damaged = true;
                let mail = key.side(&format!(
                    "mail:{}",
                    Sha1::from(Tokens::default().present(0).as_str()).digest()
                ));
                let name = if *name == "mail" { mail } else { key.side(name) };
                self.send(&["DEL", &name]);
                self.send(&["HSET", &name, "theirs", "1"]);
            }
            Step::Set(field, value) => {
                self.is_damaged = true;
                self.send(&["HSET", &key.side("state"), field, value]);
            }
            Step::Write(ttl) => {
                let until = ttl.map(|ttl| now + ttl);
                let expiry = until.map(|until| until.to_string());
                let expiry = expiry.iter().flat_map(|until| ["PXAT", until]);
                let words = ["SET", key.as_str(), "theirs"].into_iter().chain(expiry);
                self.send(&words.collect::<Vec<_>>());
                self.model.guard = Some(Guard { value: "theirs".into(), until });
            }
            Step::Delete => {
                self.send(&["DEL", key.as_str()]);
                self.model.guard = None;
            }
            Step::Lose(name) => {
                self.send(&["DEL", &key.side(name)]);
                match *name {
                    "holds" => {
                        self.has_remains = true;
                        // A holder that loses its hold ends. It does not ask again.
                        let lost = mem::take(&mut self.model.holds);
                        for client in 0..CLIENTS {
                            let token = self.tokens.present(client);
                            if lost.iter().any(|hold| hold.token == token.as_str()) {
                                self.ends(client);
                            }
                        }
                    }
                    "queue" => {
                        self.has_remains = true;
                        self.model.queue.clear();
                    }
                    "history" => self.model.history.clear(),
                    "tombstones" => self.model.tombstones.clear(),
                    _ => {
                        self.send(&["DEL", key.as_str(), &key.side("queue")]);
                        let Lock { history, tombstones, .. } = mem::take(&mut self.model);
                        self.model = Lock { history, tombstones, ..Lock::default() };
                        (0..CLIENTS).for_each(|client| self.ends(client));
                        return self.play(&Step::Ask(Ask { reminds: Some(20_000), ..plain_ask() }));
                    }
                }
            }
            Step::Overwrite(client, deadline) => {
                let token = self.tokens.present(*client);
                let hold =
                    self.model.holds.iter_mut().find(|hold| hold.token == token.as_str()).unwrap();
                hold.deadline = *deadline;
                let deadline = deadline.to_string();
                self.send(&["ZADD", &key.side("holds"), &deadline, token.as_str()]);
            }
            Step::Forget(back) => {
                self.send(&["FLUSHALL"]);
                self.pass_to(now - back);
                (self.model, self.kept, self.replica) = Default::default();
                (self.has_remains, self.is_damaged) = (false, false);
            }
            Step::Lag => {
                self.replica = Some(Replica {
                    keys: Shim::redis(|redis| redis.home().clone()),
                    model: self.model.clone(),
                    has_remains: self.has_remains,
                    is_damaged: self.is_damaged,
                    kept: self.kept.clone(),
                });
            }
            Step::GoBack => {
                if let Some(replica) = self.replica.take() {
                    self.go_back(replica);
                }
            }
        }
        self.largest = self.largest.max(self.model.fence);
        self.steps += 1;
        if step.is_call() {
            self.compare();
        }
        if self.steps.is_multiple_of(8) {
            // As `local:` does between two requests.
            let stored = serde_json::to_vec(&self.model).unwrap();
            self.model = serde_json::from_slice(&stored).unwrap();
        }
        if self.steps % 8 == 4 {
            self.inspect();
        }
    }
}

/// The holders in a reply.
pub(super) fn seen_in(view: &View) -> Option<Seen> {
    let fence = view.holders.iter().map(|holder| holder.fence).max()?;
    let ids = view.holders.iter().map(|holder| holder.id.clone()).collect();
    let seen = Seen { generation: view.generation.clone(), fence, left: Duration::ZERO, ids };
    Some(seen).filter(|seen| !seen.generation.is_empty())
}
