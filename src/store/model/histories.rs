//! The scripts on a real server and the model have to agree: the same random history for both, and
//! every reply and everything that can be seen compared.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod server;

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use server::Server;

use super::*;
use crate::lock::{About, Fence, Key, Label, Owner};
use crate::store::Store;
use crate::store::address::Address;
use crate::store::scripted::Scripted;
use crate::store::single::Single;

/// Where the history starts; so far ahead that no key expires by the server's own clock.
const START: u64 = 4_000_000_000_000;

/// What happens next. Clients and owners are numbers, for short.
#[derive(Clone, Debug)]
enum Step {
    Ask(Ask),
    Renew(u8, u64),
    Release(u8, Option<u8>),
    /// A renewal that was under way when the client released its lock.
    RenewLate(u8, u64),
    Leave(u8),
    Revoke(Eviction),
    Pass(u64),
    /// Another tool writes the key, with or without an expiry.
    Write(Option<u64>),
    /// Somebody deletes the key.
    Delete,
    /// The server loses all its data.
    Forget,
}

#[derive(Clone, Debug)]
struct Ask {
    client: u8,
    mode: Mode,
    ttl: u64,
    at_least: u64,
    heartbeat: Option<u64>,
    owner: Option<u8>,
    enclosing: Vec<u8>,
    reentrant: bool,
    /// Wants a fence so far behind or ahead of the clock.
    fence: Option<i64>,
    /// Reminds the server of what the last reply showed.
    reminds: bool,
}

fn client() -> impl Strategy<Value = u8> {
    0..6_u8
}

fn ask() -> impl Strategy<Value = Ask> {
    let slots = |slots: u32| Mode::Slots(slots.try_into().unwrap());
    let mode = prop_oneof![
        3 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        2 => Just(slots(2)),
        1 => Just(slots(3)),
    ];
    let at_least = prop_oneof![3 => Just(0), 1 => 1..8_000_u64];
    let terms = (mode, 100..6_000_u64, at_least, option::weighted(0.8, 100..4_000_u64));
    let owner = (option::weighted(0.3, 0..2_u8), vec(client(), 0..2));
    let fence = option::weighted(0.2, -3_000..3_000_i64);
    let flags = (proptest::bool::weighted(0.3), proptest::bool::weighted(0.3), fence);
    (client(), terms, owner, flags).prop_map(
        |(
            client,
            (mode, ttl, at_least, heartbeat),
            (owner, enclosing),
            (reentrant, reminds, fence),
        )| {
            Ask {
                client,
                mode,
                ttl,
                at_least,
                heartbeat,
                owner,
                enclosing,
                reentrant,
                fence,
                reminds,
            }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => ask().prop_map(Step::Ask),
        3 => (client(), 100..6_000_u64).prop_map(|(client, ttl)| Step::Renew(client, ttl)),
        1 => (client(), 100..6_000_u64).prop_map(|(client, ttl)| Step::RenewLate(client, ttl)),
        5 => (client(), option::of(any::<u8>())).prop_map(|(client, exit)| Step::Release(client, exit)),
        2 => client().prop_map(Step::Leave),
        1 => prop_oneof![Just(Eviction::WhenGone), Just(Eviction::Now)].prop_map(Step::Revoke),
        6 => prop_oneof![0..50_u64, 0..3_000_u64, 0..20_000_u64].prop_map(Step::Pass),
        1 => option::of(1..5_000_u64).prop_map(Step::Write),
        1 => Just(Step::Delete),
        1 => Just(Step::Forget),
    ]
}

/// The tokens that the clients use; a new one after each release, as everybody does.
#[derive(Default)]
struct Tokens([u16; 6]);

impl Tokens {
    fn present(&self, client: u8) -> Token {
        Self::name(client, self.0[usize::from(client)])
    }

    fn former(&self, client: u8) -> Token {
        Self::name(client, self.0[usize::from(client)].saturating_sub(1))
    }

    fn name(client: u8, number: u16) -> Token {
        format!("{client}-{number:06}-of-a-hold").parse().unwrap()
    }

    fn used_up(&mut self, client: u8) {
        self.0[usize::from(client)] += 1;
    }
}

impl Ask {
    fn request(&self, key: &Key, tokens: &Tokens, now: u64) -> Request {
        let owner = |owner: u8| format!("owner-{owner}").parse::<Owner>().unwrap();
        let about = About {
            host: "host".into(),
            user: "user".into(),
            pid: u32::from(self.client),
            command: "command".into(),
            kind: crate::lock::Kind::Exec,
            label: Some("label".parse::<Label>().unwrap()),
        };
        Request {
            key: key.clone(),
            token: tokens.present(self.client),
            mode: self.mode,
            ttl: Ttl::from_millis(self.ttl),
            at_least: Duration::from_millis(self.at_least),
            heartbeat: self.heartbeat.map(Duration::from_millis),
            owner: self.owner.map(owner),
            fresh_owner: format!("fresh-{}", tokens.present(self.client).as_str()).parse().unwrap(),
            enclosing: self.enclosing.iter().map(|client| tokens.present(*client)).collect(),
            reentrant: self.reentrant,
            about: about.to_lines(),
            fence: self.fence.map(|ahead| Fence(now.saturating_add_signed(ahead))),
        }
    }
}

/// A lock on a server and in the model, and the time that both believe.
struct Both<'a> {
    server: &'a mut Scripted<Single>,
    key: Key,
    model: Lock,
    now: u64,
    seen: Vec<Seen>,
    tokens: Tokens,
    /// What each client asks for until it releases it: a repeated request is the same request.
    asked: [Option<Ask>; 6],
}

impl<'a> Both<'a> {
    fn new(server: &'a mut Scripted<Single>) -> Self {
        let key = Key::new(&"rlock:".parse().unwrap(), &"L".parse().unwrap());
        let mut both = Self {
            server,
            key,
            model: Lock::default(),
            now: START,
            seen: Vec::new(),
            tokens: Tokens::default(),
            asked: Default::default(),
        };
        both.send(&["FLUSHALL"]);
        both.tell_the_time();
        both
    }

    fn send(&mut self, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.server.send_one(command);
    }

    fn tell_the_time(&mut self) {
        let now = self.now.to_string();
        self.send(&["SET", "test:now", &now]);
    }

    fn play(&mut self, step: &Step) {
        let (key, now) = (self.key.clone(), self.now);
        match step {
            Step::Ask(new) => {
                let asked = self.asked[usize::from(new.client)].get_or_insert_with(|| new.clone());
                let ask = &Ask { reminds: new.reminds, fence: new.fence, ..asked.clone() };
                let request = ask.request(&key, &self.tokens, now);
                let seen = if ask.reminds { self.seen.clone() } else { Vec::new() };
                let theirs = self.server.acquire(&request, &seen, None).unwrap();
                let ours = self.model.acquire(&request, &seen, now);
                assert_eq!(theirs, ours);
                if let Answer::Queued { view, .. } | Answer::Busy(view) = ours {
                    let seen = view.holders.into_iter().map(|holder| {
                        let left = Duration::from_millis(500);
                        Seen { holder, left }
                    });
                    self.seen = seen.collect();
                }
            }
            Step::Renew(client, ttl) | Step::RenewLate(client, ttl) => {
                let token = match step {
                    Step::RenewLate(..) => self.tokens.former(*client),
                    _ => self.tokens.present(*client),
                };
                let ttl = Ttl::from_millis(*ttl);
                let theirs = self.server.renew(&key, &token, ttl, None).unwrap();
                assert_eq!(theirs, self.model.renew(&token, ttl, now));
            }
            Step::Release(client, exit) => {
                let token = self.tokens.present(*client);
                let outcome = exit.map_or(Outcome::Lost, Outcome::Exit);
                let theirs = self.server.release(&key, &token, outcome).unwrap();
                assert_eq!(theirs, self.model.release(&token, outcome, now));
                self.tokens.used_up(*client);
                self.asked[usize::from(*client)] = None;
            }
            Step::Leave(client) => {
                let request = Ask { client: *client, ..nothing() }.request(&key, &self.tokens, now);
                let theirs = self.server.leave(&request).unwrap();
                assert_eq!(theirs, self.model.leave(&request.token, now));
                self.tokens.used_up(*client);
                self.asked[usize::from(*client)] = None;
            }
            Step::Revoke(eviction) => {
                let theirs = self.server.revoke(&key, *eviction, "somebody").unwrap();
                assert_eq!(theirs, self.model.revoke(*eviction, "somebody", now));
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
            Step::Forget => {
                self.send(&["FLUSHALL"]);
                self.tell_the_time();
                self.model = Lock::default();
            }
        }
        assert_eq!(self.server.inspect(&key).unwrap(), self.model.inspect(self.now));
    }
}

fn nothing() -> Ask {
    Ask {
        client: 0,
        mode: Mode::Exclusive,
        ttl: 100,
        at_least: 0,
        heartbeat: None,
        owner: None,
        enclosing: Vec::new(),
        reentrant: false,
        fence: None,
        reminds: false,
    }
}

/// 300 histories, or as many as PROPTEST_CASES says.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if default.cases > 256 { default.cases } else { 300 };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

#[test]
fn the_scripts_and_the_model_agree_on_every_history() {
    let server = Server::start();
    let address = Address::parse(&server.url()).unwrap();
    let store = Scripted::on_a_test_clock(address, Duration::from_secs(10));
    let store = std::cell::RefCell::new(store);
    proptest!(config(), |(steps in vec(step(), 1..60))| {
        let mut store = store.borrow_mut();
        let mut both = Both::new(&mut store);
        for step in &steps {
            both.play(step);
        }
    });
}
