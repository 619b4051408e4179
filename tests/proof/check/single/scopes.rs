//! The scopes.

use std::env;

use super::world::World;
use crate::check::property::Property;
use crate::check::report::{assert_breaks, play_all};

/// What every test run plays, within a minute.
const QUICK: &[&str] = &[
    // Messages that are late or lost.
    "x,x d1 b1; x,x,x d1; s,s,x d1; 2,2 b1 d1; x,xw d1 b1",
    // Clients that die, give up, are paused or cut off.
    "x,x,x c1; 2,2,2 c1; x,x l1 b1; x,x p1 d1; x,x n1 c1; x,xp c1 l1; x,xp,xp c1",
    // Operators and other tools.
    "x,x v1 c1; x,x w1 c1 d1; x,x k1 d1",
    // A server that restarts, or one whose name leads to a replica for a while.
    "x,x r1 d1; x,x f1 b1; x,x,x f1; x,x b1 y1; xo,so y1 v1; x,xd y1",
    // A server that goes back to what a replica had.
    "x,x t1",
    // A lock that is kept, or entered once more.
    "xa,xa d1; xa,2a,x l1; xo,xo,x c1; xo,so,s l1; x,xi,x c1; x,xi v1 d1",
    // Requests that go ahead, or end older ones.
    "x,x,xh d1; x,xu,xu d1; s,xu,su d1",
    // Clocks that drift or are set.
    "xl,xg n1; xl,x p1; x,x a1 e1 d1",
];

/// What `RLOCK_CHECK=all` plays as well, within 15 minutes and 2 GiB in a release build.
const LONG: &[&str] = &[
    "x,x,x d1 b1; s,s,x d1 b1",
    "x,x,x,x c1; x,xw,x d1 l1 c1; x,xp,xp c1 l1 d1; x,x p1 d1 b1 v1; x,x n2 c1; x,x,x n1 c1",
    "x,x,x v1 b1; x,x,x v1 b1 c1; x,x w1 c1 d1 b1; x,x,x k1 c1 l1; x,x k1 d1 c1",
    "x,x r1 f1 d1 c1; x,x,x f1 c1; 2,2,2 f1 c1; s,s,x f1 c1; x,x,x t1",
    "xa,xa,x c1 l1; xa,2a,x d1 v1; xo,xo,x d1 c1; x,xi,x v1 b1",
    "x,x a1 n1; x,x,x a1 e1; s,x,sh d1; x,xu,xu b1; x,xu,xu n1; x,xu,xu p1; x,xu,xu f1",
];

#[test]
fn no_history_of_a_few_clients_and_a_server_breaks_a_promise() {
    play_all::<World>(env::var("RLOCK_CHECK").unwrap_or_default().leak(), QUICK, LONG);
}

#[test]
fn a_clock_that_drifts_more_than_the_rules_allow_breaks_a_promise() {
    assert_breaks::<World>("xL,x n1", Property::HoldersExcludeEachOther);
}
