//! The scripts on a real server and the model must agree. Both play the same random history, and
//! the test compares every reply and the visible state.

mod play;
mod stories;
mod test_clock;

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use play::{Ask, Both, SideKey, Step, on_a_server};
use rlock::rules::{Kind, Mode, Revocation, Slot};

fn client() -> impl Strategy<Value = u8> {
    0..6_u8
}

fn ask() -> impl Strategy<Value = Ask> {
    let slots = |slots: u32| Mode::Slots(slots.try_into().unwrap());
    let mode = prop_oneof![
        3 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        2 => Just(slots(2)),
        1 => Just(slots(5)),
    ];
    let at_least = prop_oneof![3 => Just(0), 1 => 1..8_000_u64];
    let terms = (mode, 100..6_000_u64, at_least, option::weighted(0.8, 100..4_000_u64));
    let owner = (option::weighted(0.3, 0..2_u8), vec(client(), 0..2));
    let slot = option::weighted(0.7, (1..4_u32).prop_map(|slot| Slot::new(slot).unwrap()));
    let held = option::weighted(0.2, (-3_000..3_000_i64, slot));
    let ticket = option::weighted(0.4, option::weighted(0.5, -3_000..3_000_i64));
    let kind = prop_oneof![Just(Kind::Exec), Just(Kind::Acquire)];
    let overtaken = prop_oneof![3 => Just(0), 1 => 1..3_u64];
    let flags = (
        proptest::bool::weighted(0.3),
        proptest::bool::weighted(0.3),
        proptest::bool::weighted(0.2),
        proptest::bool::weighted(0.4),
        option::weighted(0.5, -3_000..3_000_i64),
        held,
        ticket,
        overtaken,
        kind,
    );
    (client(), terms, owner, flags).prop_map(
        |(
            client,
            (mode, ttl, at_least, heartbeat),
            (owner, enclosing),
            (reentrant, reminds, next, supersedes, arrival, held, ticket, overtaken, kind),
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
                next,
                supersedes,
                arrival,
                held,
                ticket,
                reminds,
                overtaken,
                kind,
            }
        },
    )
}

fn side_key() -> impl Strategy<Value = SideKey> {
    prop_oneof![
        Just(SideKey::Holds),
        Just(SideKey::Queue),
        Just(SideKey::History),
        Just(SideKey::Tombstones),
    ]
}

fn revocation() -> impl Strategy<Value = Revocation> {
    prop_oneof![Just(Revocation::Graceful), Just(Revocation::Now)]
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
        1 => client().prop_map(Step::Leave),
        1 => client().prop_map(Step::GiveUp),
        1 => (revocation(), 0..3_u8).prop_map(|(how, unseen)| Step::Revoke(how, unseen)),
        2 => (client(), revocation()).prop_map(|(client, how)| Step::Remove(client, how)),
        6 => prop_oneof![0..50_u64, 0..3_000_u64, 0..20_000_u64].prop_map(Step::Pass),
        1 => option::of(1..5_000_u64).prop_map(Step::Write),
        1 => Just(Step::Delete),
        1 => Just(Step::Forget),
        1 => side_key().prop_map(Step::Lose),
    ]
}

/// Plays 500 histories, or more if PROPTEST_CASES asks for more than 256.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if default.cases > 256 { default.cases } else { 500 };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

#[test]
fn the_scripts_and_the_model_agree_on_every_history() {
    on_a_server(|server| {
        let server = RefCell::new(server);
        proptest!(config(), |(steps in vec(step(), 1..60))| {
            let mut server = server.borrow_mut();
            let mut both = Both::new(&mut server);
            for step in &steps {
                both.play(step);
            }
        });
    });
}
