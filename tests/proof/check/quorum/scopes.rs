//! The scopes.

use std::env;

use super::world::World;
use crate::check::property::Property;
use crate::check::report::{assert_breaks, play_all};

/// What every test run plays.
const QUICK: &[&str] = &[
    // Two clients or more, while a server is dead or frozen.
    "x,x D1; s,x D1; x,xn D1; xn,xn D1; s,s D1; s,s Z1; 1,1 D1; 2,2 D1; 2n,2n D1",
    "2,2t,2t D1; 1,1t,1t D1; x,xt,xt D1; s,xt,st D1",
    // Servers that fail meanwhile, and a lease that is renewed.
    "x k1; xn k1; x z1; x f1; xr f1; 2 k1; 2,2t k1",
    // A member that is promoted, and has lost its last writes.
    "x p1; xr p1; xn p1",
    // Clients that die or give up.
    "x,x D1 c1; x,x D1 l1; 2,2 D1 c1",
    // Requests that go ahead, or end older ones.
    "x,xh D1; x,xh D1 c1; xu,xu D1; xu,xu D1 l1",
    // Clocks that are wrong.
    "x A1; xn A1; x A1 f1; xr A1 f1; xl,xg D1; xr a1; xr e1; x,x D1 a1; x,x D1 e1",
];

/// What `RLOCK_CHECK=all` plays as well.
const LONG: &[&str] = &[
    "x,xt; x,xnt; xn,xn; 2,x; x,xt A1; x,xnt A1",
    "x,xn D1 l1; xn,xn D1 l1; 2,2 D1 l1; x,x D1 b1; 2,2,2t D1; 2,2t,2t D1 c1",
    "2,2t f1; 2r,2t f1; 2,2t z1; x,xt p1",
    "x,xu,xu D1; x,x,xh D1; x,xt a1",
];

#[test]
fn no_history_of_a_few_clients_and_a_quorum_breaks_a_promise() {
    let all = env::var("RLOCK_CHECK").ok().filter(|wanted| wanted == "all");
    let wanted = env::var("RLOCK_CHECK_QUORUM").ok().or(all);
    play_all::<World>(wanted.unwrap_or_default().leak(), QUICK, LONG);
}

#[test]
fn clocks_of_a_majority_that_are_set_ahead_break_a_promise() {
    assert_breaks::<World>("x,x D1 a2", Property::HoldersExcludeEachOther);
}

#[test]
fn a_clock_that_drifts_more_than_the_rules_allow_breaks_a_promise() {
    assert_breaks::<World>("xL,x D1", Property::HoldersExcludeEachOther);
}
