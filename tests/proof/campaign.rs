//! Campaigns: random faults against the real binary, for as long as you like, and a judge.
//!
//! A campaign starts servers and plays rounds on them. In a round, a few workers use one lock in
//! random ways, while random faults hit the servers, the network and rlock (`plan`). Each command
//! writes down when it ran (`worker`). When all have ended, the judge compares that with
//! docs/promises.md (`judge`). A seed reproduces the plan of a round.
//!
//! `tests/proof/campaign/run` plays a campaign for a given time.

#![allow(unreachable_pub)]

mod deployment;
mod faults;
mod judge;
mod kind;
mod plan;
mod record;
mod round;
mod strain;
mod time;
mod worker;

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use deployment::Deployment;
use kind::Kind;
use plan::Plan;

/// Sets the number of rounds.
const ROUNDS_VARIABLE: &str = "RLOCK_TEST_ROUNDS";
/// Sets the time of the campaign in seconds instead.
const SECONDS_VARIABLE: &str = "RLOCK_TEST_SECONDS";
/// Sets the seed of the first round, to repeat a failure. Each later round adds one to it.
const SEED_VARIABLE: &str = "RLOCK_TEST_SEED";
/// 1 or 0: whether commands make storms of processes, signals and output, and hosts are suspended. By
/// default, only in a campaign for a given time.
const HOSTILE_VARIABLE: &str = "RLOCK_TEST_HOSTILE";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn campaign(kind: Kind) {
    let seconds = number(SECONDS_VARIABLE).map(Duration::from_secs);
    let rounds = number(ROUNDS_VARIABLE).unwrap_or(if seconds.is_some() { 1 << 32 } else { 2 });
    let seed = number(SEED_VARIABLE).unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let is_hostile = number(HOSTILE_VARIABLE).map_or(seconds.is_some(), |number| number > 0);
    println!("{kind:?}: from seed {seed}, hostile: {is_hostile}");
    let mut deployment = Deployment::start(kind);
    let (mut played, mut ran, mut faults, mut excused) = (0, 0, 0, 0);
    let mut complaints = String::new();
    let started = Instant::now();
    for seed in seed..seed + rounds {
        if seconds.is_some_and(|seconds| started.elapsed() >= seconds) {
            break;
        }
        let record = round::play(&mut deployment, &Plan::new(kind, seed, is_hostile));
        let verdict = judge::judge(&record);
        played += 1;
        ran += record.workers.iter().filter(|worker| worker.run.is_some()).count();
        faults += record.faults.len();
        excused += verdict.excused;
        if !verdict.violations.is_empty() {
            println!("{record:#?}");
        }
        for (promise, what) in verdict.violations {
            complaints += &format!("seed {seed}: {promise:?}: {what}\n");
        }
    }
    println!("{played} rounds, {ran} commands, {faults} faults, {excused} excused overlaps");
    // In the last lines, because a log may lose what is above.
    assert!(complaints.is_empty(), "a promise is broken:\n{complaints}");
}

/// A campaign on each of these kinds of servers.
macro_rules! campaigns {
    ($($name:ident: $kind:expr;)+) => {
        $(#[test]
        fn $name() {
            campaign($kind);
        })+
    };
}

campaigns! {
    on_one_server: Kind::Server;
    on_local_files: Kind::Files;
    on_sentinel: Kind::Sentinel;
    on_a_cluster: Kind::Cluster;
    on_an_endpoint: Kind::Endpoint;
    on_a_quorum: Kind::Quorum(3);
    on_a_quorum_of_five: Kind::Quorum(5);
    on_a_quorum_of_endpoints: Kind::QuorumOfEndpoints(3);
}
