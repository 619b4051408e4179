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
use crate::lock::{ClientInfo, Fence, Key, Label, Owner};
use crate::store::server::{Scripted, Single};
use crate::store::wire::{self, Address};
use crate::store::{Answer, Store};

/// Where the history starts; so far ahead that no key expires by the server's own clock.
const START: u64 = 4_000_000_000_000;

/// What happens next. Clients and owners are numbers, for short.
#[derive(Clone, Debug)]
enum Step {
    Ask(Ask),
    Renew(u8, Option<u64>),
    Release(u8, Option<u8>),
    /// What was under way when the client released its lock, or gave up asking.
    AskLate(Ask),
    RenewLate(u8, Option<u64>),
    ReleaseLate(u8),
    LeaveLate(u8),
    Leave(u8),
    /// A farewell that overtakes the request: the token is not known yet.
    LeaveEarly(u8),
    Revoke(Revocation),
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
    /// So many requests of this client were sent after it: it is a duplicate, or was overtaken.
    overtaken: u64,
    kind: crate::lock::Kind,
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
    let kind = prop_oneof![Just(crate::lock::Kind::Exec), Just(crate::lock::Kind::Acquire)];
    let overtaken = prop_oneof![3 => Just(0), 1 => 1..3_u64];
    let flags =
        (proptest::bool::weighted(0.3), proptest::bool::weighted(0.3), fence, overtaken, kind);
    (client(), terms, owner, flags).prop_map(
        |(
            client,
            (mode, ttl, at_least, heartbeat),
            (owner, enclosing),
            (reentrant, reminds, fence, overtaken, kind),
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
                overtaken,
                kind,
            }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => ask().prop_map(Step::Ask),
        3 => (client(), option::of(100..6_000_u64)).prop_map(|(client, ttl)| Step::Renew(client, ttl)),
        1 => (client(), option::of(100..6_000_u64)).prop_map(|(client, ttl)| Step::RenewLate(client, ttl)),
        1 => ask().prop_map(Step::AskLate),
        1 => client().prop_map(Step::ReleaseLate),
        1 => client().prop_map(Step::LeaveLate),
        1 => client().prop_map(Step::LeaveEarly),
        5 => (client(), option::of(any::<u8>())).prop_map(|(client, exit)| Step::Release(client, exit)),
        2 => client().prop_map(Step::Leave),
        1 => prop_oneof![Just(Revocation::WhenGone), Just(Revocation::Now)].prop_map(Step::Revoke),
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
        let about = ClientInfo {
            host: "host".into(),
            user: "user".into(),
            pid: u32::from(self.client),
            command: "command".into(),
            kind: self.kind,
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
            // Its end has to be its own, as that of a random one.
            fresh_owner: format!("fresh-{}", &tokens.present(self.client).as_str()[..8])
                .parse()
                .unwrap(),
            enclosing: self.enclosing.iter().map(|client| tokens.present(*client)).collect(),
            reentrant: self.reentrant,
            client: about.to_lines(),
            fence: self
                .fence
                .map(|ahead| Fence((now * 1_000).saturating_add_signed(ahead * 1_000))),
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
    /// How many requests each client has sent.
    attempts: [u64; 6],
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
            attempts: [0; 6],
        };
        both.send(&["FLUSHALL"]);
        both.tell_the_time();
        both
    }

    fn send(&mut self, words: &[&str]) {
        let mut command = wire::cmd(words[0]);
        command.arg(&words[1..]);
        self.server.send_one(command);
    }

    fn tell_the_time(&mut self) {
        let now = self.now.to_string();
        self.send(&["SET", "test:now", &now]);
    }

    fn ask(&mut self, request: &Request, attempt: u64, seen: &[Seen]) -> Verdict {
        let theirs = self.server.ask(request, attempt, seen, None).unwrap();
        let ours = self.model.acquire(request, attempt, seen, self.now);
        assert_eq!(theirs, ours);
        ours
    }

    fn play(&mut self, step: &Step) {
        let (key, now) = (self.key.clone(), self.now);
        match step {
            Step::Ask(new) => {
                let client = usize::from(new.client);
                let asked = self.asked[client].get_or_insert_with(|| new.clone());
                let ask = &Ask { reminds: new.reminds, fence: new.fence, ..asked.clone() };
                let request = ask.request(&key, &self.tokens, now);
                let seen = if ask.reminds { self.seen.clone() } else { Vec::new() };
                self.attempts[client] += 1;
                let attempt = self.attempts[client].saturating_sub(new.overtaken);
                let ours = self.ask(&request, attempt, &seen);
                if let Verdict::Answer(Answer::Queued { view, .. } | Answer::Busy(view)) = ours {
                    let seen = view.holders.into_iter().map(|holder| {
                        let left = Duration::from_millis(500);
                        Seen { holder, left, life: view.life.clone() }
                    });
                    self.seen = seen.collect();
                }
            }
            Step::AskLate(ask) => {
                let request = ask.request(&key, &self.tokens, now);
                let request = Request { token: self.tokens.former(ask.client), ..request };
                self.ask(&request, self.attempts[usize::from(ask.client)], &[]);
            }
            Step::Renew(client, ttl) | Step::RenewLate(client, ttl) => {
                let token = match step {
                    Step::RenewLate(..) => self.tokens.former(*client),
                    _ => self.tokens.present(*client),
                };
                let ttl = ttl.map(Ttl::from_millis);
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
            Step::ReleaseLate(client) => {
                let token = self.tokens.former(*client);
                let theirs = self.server.release(&key, &token, Outcome::Unknown).unwrap();
                assert_eq!(theirs, self.model.release(&token, Outcome::Unknown, now));
            }
            Step::Leave(client) | Step::LeaveLate(client) | Step::LeaveEarly(client) => {
                let token = match step {
                    Step::LeaveLate(_) => self.tokens.former(*client),
                    _ => self.tokens.present(*client),
                };
                let request = Ask { client: *client, ..nothing() }.request(&key, &self.tokens, now);
                let request = Request { token, ..request };
                let theirs = self.server.leave(&request).unwrap();
                assert_eq!(theirs, self.model.leave(&request.token, request.ttl, now));
                // One that was early leaves the client asking with a token that is over.
                if let Step::Leave(_) = step {
                    self.tokens.used_up(*client);
                    self.asked[usize::from(*client)] = None;
                }
            }
            Step::Revoke(revocation) => {
                let theirs = self.server.revoke(&key, *revocation, "somebody").unwrap();
                assert_eq!(theirs, self.model.revoke(*revocation, "somebody", now));
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
        overtaken: 0,
        kind: crate::lock::Kind::Exec,
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

/// What happened once, played to both.
mod stories {
    use super::*;

    fn play(story: impl FnOnce(&mut Both<'_>)) {
        let server = Server::start();
        let address = Address::parse(&server.url()).unwrap();
        let mut store = Scripted::on_a_test_clock(address, Duration::from_secs(10));
        story(&mut Both::new(&mut store));
    }

    impl Both<'_> {
        /// What a client is answered, by both.
        fn answer(&mut self, ask: &Ask, attempt: u64, seen: &[Seen]) -> Verdict {
            let request = ask.request(&self.key.clone(), &self.tokens, self.now);
            self.ask(&request, attempt, seen)
        }

        fn remembered(&mut self) -> Vec<Seen> {
            let view = self.model.inspect(self.now);
            let left = Duration::from_secs(20);
            let seen = |holder| Seen { holder, left, life: view.life.clone() };
            view.holders.into_iter().map(seen).collect()
        }
    }

    fn a_client(client: u8) -> Ask {
        Ask { client, ttl: 30_000, heartbeat: Some(10_000), ..nothing() }
    }

    fn is_granted(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Answer(Answer::Granted { .. }))
    }

    fn position(verdict: &Verdict) -> Option<u64> {
        match verdict {
            Verdict::Answer(Answer::Queued { position, .. }) => *position,
            _ => None,
        }
    }

    #[test]
    fn a_late_duplicate_does_not_end_its_senders_revoked_hold() {
        play(|both| {
            let (first, second) = (a_client(0), a_client(1));
            assert!(is_granted(&both.answer(&first, 2, &[])));
            both.play(&Step::Revoke(Revocation::WhenGone));
            assert_eq!(both.answer(&first, 1, &[]), Verdict::Again);
            assert_eq!(position(&both.answer(&second, 1, &[])), Some(1));
            // Asking anew, it has lost its turn.
            assert_eq!(position(&both.answer(&first, 3, &[])), Some(1));
            assert!(is_granted(&both.answer(&second, 2, &[])));
        });
    }

    #[test]
    fn a_request_that_arrives_after_its_farewell_or_its_release_gets_nothing() {
        play(|both| {
            let over = |verdict| matches!(verdict, Verdict::Answer(Answer::Over(_)));
            both.play(&Step::LeaveEarly(0));
            assert!(over(both.answer(&a_client(0), 1, &[])));
            let shared = Ask { mode: Mode::Shared, at_least: 60_000, ..a_client(1) };
            assert!(is_granted(&both.answer(&shared, 1, &[])));
            both.play(&Step::Release(1, Some(0)));
            let late = Step::AskLate(shared);
            both.play(&late);
            assert_eq!(both.model.inspect(both.now).holder_count, 1);
            both.play(&Step::Pass(59_000));
            both.play(&late);
            both.play(&Step::Pass(1_001));
            assert_eq!(both.model.inspect(both.now).state, crate::lock::view::State::Free);
        });
    }

    #[test]
    fn a_waiter_that_saw_a_holder_stays_out_though_a_newcomer_was_let_in_after_a_loss_of_data() {
        play(|both| {
            let shared = |client| Ask { mode: Mode::Shared, ..a_client(client) };
            assert!(is_granted(&both.answer(&shared(0), 1, &[])));
            assert_eq!(position(&both.answer(&a_client(1), 1, &[])), Some(1));
            let seen = both.remembered();
            both.play(&Step::Forget);
            assert!(is_granted(&both.answer(&shared(2), 1, &[])));
            assert_eq!(position(&both.answer(&a_client(1), 2, &seen)), Some(1));
            both.play(&Step::Leave(1));
            // Nor does it let anybody else in.
            assert_eq!(position(&both.answer(&shared(3), 1, &[])), Some(1));
            // Another reminder makes it no longer.
            both.play(&Step::Pass(15_000));
            let answer = both.answer(&shared(3), 2, &seen);
            assert_eq!(position(&answer), Some(1), "{answer:?}");
            both.play(&Step::Release(2, Some(0)));
            both.play(&Step::Pass(5_001));
            assert!(is_granted(&both.answer(&shared(3), 3, &seen)));
        });
    }

    #[test]
    fn a_late_duplicate_does_not_revive_a_hold_that_was_freed_at_once() {
        play(|both| {
            assert!(is_granted(&both.answer(&a_client(0), 2, &[])));
            both.play(&Step::Revoke(Revocation::Now));
            let late = both.answer(&a_client(0), 1, &[]);
            assert!(matches!(late, Verdict::Answer(Answer::Over(_))), "{late:?}");
            assert!(is_granted(&both.answer(&a_client(1), 1, &[])));
        });
    }

    #[test]
    fn a_waiter_is_told_of_the_holders_whose_leases_last_longest() {
        play(|both| {
            for (client, ttl) in [(0, 2_000), (1, 60_000), (2, 1_000), (3, 3_000), (4, 4_000)] {
                let shared = Ask { mode: Mode::Shared, ttl, ..a_client(client) };
                assert!(is_granted(&both.answer(&shared, 1, &[])));
            }
            let waiting = both.answer(&a_client(5), 1, &[]);
            let Verdict::Answer(Answer::Queued { view, .. }) = waiting else { panic!() };
            let told: Vec<String> = view.holders.into_iter().map(|holder| holder.id).collect();
            let ids = [3, 4, 1].map(|client| both.tokens.present(client).id());
            assert_eq!((view.holder_count, told), (5, ids.into()));
        });
    }

    #[test]
    fn a_lease_that_ended_in_order_is_not_reinstated() {
        play(|both| {
            assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
            assert_eq!(position(&both.answer(&a_client(1), 1, &[])), Some(1));
            let seen = both.remembered();
            both.play(&Step::Leave(1));
            both.play(&Step::Release(0, Some(0)));
            assert!(is_granted(&both.answer(&a_client(2), 1, &seen)));
            assert_eq!(both.model.inspect(both.now).holder_count, 1);
        });
    }

    #[test]
    fn a_renewal_under_exec_never_shortens_and_without_a_length_keeps_it() {
        play(|both| {
            let left = |both: &Both<'_>| both.model.inspect(both.now).ttl.unwrap().as_millis();
            assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
            both.play(&Step::Renew(0, Some(1_000)));
            assert_eq!(left(both), 30_000);
            both.play(&Step::Renew(0, Some(60_000)));
            both.play(&Step::Pass(50_000));
            both.play(&Step::Renew(0, None));
            assert_eq!(left(both), 60_000);
            both.play(&Step::Release(0, None));
            let script = Ask { kind: crate::lock::Kind::Acquire, ..a_client(0) };
            assert!(is_granted(&both.answer(&script, 1, &[])));
            both.play(&Step::Renew(0, Some(1_000)));
            assert_eq!(left(both), 1_000);
        });
    }

    #[test]
    fn a_duplicate_that_comes_after_the_grant_leaves_the_message() {
        play(|both| {
            assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
            assert_eq!(position(&both.answer(&a_client(1), 1, &[])), Some(1));
            both.play(&Step::Release(0, None));
            let mail = both.key.side(&format!("mail:{}", both.tokens.present(1).as_str()));
            for (attempt, left) in [(1, true), (2, false)] {
                let answer = both.answer(&a_client(1), attempt, &[]);
                assert_eq!(is_granted(&answer), !left, "{answer:?}");
                assert_eq!(both.server.has_key(&mail), left, "{attempt}");
            }
        });
    }

    #[test]
    fn many_grants_in_little_time_do_not_put_the_fence_ahead_of_the_clock() {
        play(|both| {
            let mut last = 0;
            for _ in 0..300 {
                assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
                last = both.model.fence;
                both.play(&Step::Release(0, None));
            }
            both.play(&Step::Forget);
            both.play(&Step::Pass(1));
            assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
            assert!(both.model.fence > last);
        });
    }

    #[test]
    fn whoever_becomes_the_head_is_told_and_nobody_else() {
        play(|both| {
            assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
            for client in 1..4 {
                assert_eq!(position(&both.answer(&a_client(client), 1, &[])), Some(client.into()));
            }
            let token = |both: &Both<'_>, client| both.tokens.present(client).as_str().to_owned();
            let second = token(both, 2);
            assert_eq!(both.model.take_woken(), [""; 0]);
            both.play(&Step::Leave(1));
            assert_eq!(both.model.take_woken(), std::slice::from_ref(&second));
            both.play(&Step::Release(0, None));
            assert_eq!(both.model.take_woken(), [second, token(both, 3)]);
        });
    }
}
