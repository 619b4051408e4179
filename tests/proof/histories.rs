//! The scripts, on commands like those of Redis, and the model must agree: both play the same
//! histories, and each reply, each message and each key is compared.

mod expiry;
mod limits;
mod lines;
mod mutants;
mod play;
mod random;
mod step;
mod stories;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::scripts::shim::{Server, Shim, StoreOn};
use crate::scripts::twins::Twins;
use play::Both;
use step::Step;

/// How many histories a test run plays.
const HISTORIES: u64 = 20_000;

fn play(steps: &[Step]) {
    let database = u8::from(steps.len().is_multiple_of(8));
    play_on(&mut Shim::store(database), steps);
}

fn play_on<S: Server>(server: &mut StoreOn<S>, steps: &[Step]) {
    let mut both = Both::new(server);
    steps.iter().for_each(|step| both.play(step));
}

/// How many histories a developer wants.
fn cases() -> Option<u64> {
    std::env::var("PROPTEST_CASES").ok()?.parse().ok()
}

/// Leaves out what is not necessary for the history to fail.
fn shortened(mut steps: Vec<Step>) -> Vec<Step> {
    for at in (0..steps.len()).rev() {
        let mut fewer = steps.clone();
        fewer.remove(at);
        if catch_unwind(AssertUnwindSafe(|| play(&fewer))).is_err() {
            steps = fewer;
        }
    }
    steps
}

/// Plays the histories of these seeds.
fn play_all(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let steps = random::history(seed);
        if catch_unwind(AssertUnwindSafe(|| play(&steps))).is_err() {
            let steps = shortened(steps);
            println!("the shortest history with seed {seed} that fails: {steps:#?}");
            play(&steps);
        }
    }
}

#[test]
fn the_scripts_and_the_model_agree_on_every_history() {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = time.as_nanos() as u64;
    let half = cases().unwrap_or(HISTORIES) / 2;
    std::thread::scope(|threads| {
        threads.spawn(|| play_all((0..half).map(|seed| first.wrapping_add(seed))));
        play_all((0..half).map(|seed| first.wrapping_sub(seed + 1)));
    });
}

/// The commands in this process do what those of a real server do.
#[test]
fn a_real_server_gives_the_same_replies_and_has_the_same_keys() {
    let mut twins = Twins::store();
    for seed in 0..100 {
        play_on(&mut twins, &random::history(seed));
        play_on(&mut twins, &random::damaged(seed));
    }
}
