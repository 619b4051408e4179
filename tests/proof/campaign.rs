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
mod tally;
mod time;
mod worker;

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use deployment::Deployment;
use kind::Kind;
use plan::Plan;
use strain::Watcher;
use tally::{Tally, WIDTH};

/// Sets the number of rounds.
const ROUNDS_VARIABLE: &str = "RLOCK_TEST_ROUNDS";
/// Sets the time of the campaign in seconds instead.
const SECONDS_VARIABLE: &str = "RLOCK_TEST_SECONDS";
/// Sets the seed of the first round, to repeat a failure. Each later round adds one to it.
const SEED_VARIABLE: &str = "RLOCK_TEST_SEED";
/// Sets how many rounds are played at once, each on its own servers.
const LANES_VARIABLE: &str = "RLOCK_TEST_LANES";

/// How often a long campaign prints its counts.
const PROGRESS: Duration = Duration::from_secs(180);

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// The rounds of a campaign, which its lanes share.
struct Campaign {
    kind: Kind,
    started: Instant,
    /// When the campaign starts no further round.
    ends: Option<Instant>,
    /// The seeds of the rounds that have not been played.
    seeds: Mutex<Range<u64>>,
    tally: Mutex<Tally>,
    /// When the counts were last printed.
    told: Mutex<Instant>,
}

impl Campaign {
    /// Plays rounds on one deployment.
    fn lane(&self) {
        let mut deployment = Deployment::start(self.kind);
        let machine = Watcher::start();
        while self.ends.is_none_or(|ends| Instant::now() < ends) {
            let Some(seed) = self.seeds.lock().unwrap().next() else { break };
            let record = round::play(&mut deployment, &Plan::new(self.kind, seed), &machine);
            let verdict = judge::judge(&record);
            self.tally.lock().unwrap().add(&record, &verdict);
            if !verdict.violations.is_empty() {
                println!("{}{}", verdict.complaints(seed), record.story());
            }
            let mut told = self.told.lock().unwrap();
            if told.elapsed() >= PROGRESS {
                *told = Instant::now();
                println!("{}", self.counts());
            }
        }
    }

    fn counts(&self) -> String {
        let (kind, seconds) = (self.kind.name(), self.started.elapsed().as_secs());
        format!("{kind:<WIDTH$}{seconds} s\n{}", self.tally.lock().unwrap())
    }
}

fn campaign(kind: Kind) {
    let seconds = number(SECONDS_VARIABLE).map(Duration::from_secs);
    let rounds = number(ROUNDS_VARIABLE).unwrap_or(if seconds.is_some() { 1 << 32 } else { 2 });
    let seed = number(SEED_VARIABLE).unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let started = Instant::now();
    let campaign = Campaign {
        kind,
        started,
        ends: seconds.map(|seconds| started + seconds),
        seeds: Mutex::new(seed..seed + rounds),
        tally: Mutex::default(),
        told: Mutex::new(started),
    };
    println!("{}: from seed {seed}", kind.name());
    let lanes = number(LANES_VARIABLE).unwrap_or(1);
    let complete = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(|| campaign.lane())).collect();
        lanes.into_iter().filter_map(|lane| lane.join().err()).count() == 0
    });
    println!("{}", campaign.counts());
    assert!(complete, "a round could not be played: see above");
    // In the last lines, because a log may lose what is above.
    let complaints = campaign.tally.lock().unwrap().complaints();
    assert!(complaints.is_empty(), "a promise is broken:\n{complaints}");
}

#[test]
fn on_one_server() {
    campaign(Kind::Server);
}

#[test]
fn on_local_files() {
    campaign(Kind::Files);
}

#[test]
fn on_sentinel() {
    campaign(Kind::Sentinel);
}

#[test]
fn on_a_cluster() {
    campaign(Kind::Cluster);
}

#[test]
fn on_a_quorum() {
    campaign(Kind::Quorum(3));
}

#[test]
fn on_a_quorum_of_five() {
    campaign(Kind::Quorum(5));
}
