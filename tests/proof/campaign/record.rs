//! What happened in a round, as the judge reads it. All times are seconds of CLOCK_MONOTONIC.

use std::collections::BTreeMap;

use super::faults::{Effect, What};
use super::plan::{Plan, Work};
use super::strain::Strain;
use super::time::Span;

/// A gap between two signs of life that ends a span: the command may have been stopped.
const SIGN_OF_LIFE: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Status(i32),
    Signal(i32),
    /// It was still running long after the round.
    Never,
}

/// What the command of a worker wrote down.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub fence: u64,
    /// `RLOCK_SLOT`, if it is set.
    pub slot: Option<String>,
    pub first: f64,
    pub last: f64,
    /// When it was certainly running.
    pub spans: Vec<Span>,
    /// Whether it ran to its end.
    pub done: bool,
    /// What it wrote to the counter, and when, unless that rejected it.
    pub wrote: Option<(f64, u64)>,
}

#[derive(Clone, Debug)]
pub struct Worker {
    pub work: Work,
    pub started: f64,
    /// When it first told its position in the queue.
    pub queued: Option<f64>,
    pub run: Option<Run>,
    pub ended: f64,
    pub end: End,
    /// When rlock itself was stopped.
    pub stops: Vec<Span>,
    /// When it could not run because the machine starved.
    pub stuck: Vec<Span>,
    pub told: Vec<(f64, String)>,
}

/// A fault that was played.
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    pub what: What,
    pub effect: Effect,
    pub from: f64,
    pub to: f64,
    /// The time of day at `to`, in microseconds: the latest that any server may have shown.
    pub wall: u64,
    /// The exit status of `release --force`.
    pub exit: Option<i32>,
}

#[derive(Debug)]
pub struct Record {
    pub plan: Plan,
    pub workers: Vec<Worker>,
    pub faults: Vec<Happened>,
    pub strain: Strain,
    /// The sum of all steps of clocks forward, in seconds.
    pub hurried: f64,
    /// The final value of the counter.
    pub counter: u64,
    /// What a command that expected a free lock printed, if it was not free when all workers had
    /// ended and all leases had expired.
    pub held: Option<String>,
}

/// Reads what the commands wrote down, by the number of the worker.
pub fn runs(text: &str) -> BTreeMap<usize, Run> {
    let mut runs = BTreeMap::<usize, Run>::new();
    for line in text.lines() {
        // SIGKILL may have cut off a line.
        let words: Vec<&str> = line.split(' ').collect();
        let [name, fence, time, rest @ ..] = &words[..] else { continue };
        let (Ok(name), Ok(fence), Ok(time)) = (name.parse(), fence.parse(), time.parse()) else {
            continue;
        };
        let run = runs.entry(name).or_insert_with(|| Run {
            fence,
            first: time,
            spans: vec![(time, time)],
            ..Run::default()
        });
        match run.spans.last_mut() {
            Some(span) if time - span.1 <= SIGN_OF_LIFE => span.1 = time,
            _ => run.spans.push((time, time)),
        }
        run.last = time;
        match rest {
            ["slot", number] => run.slot = Some((*number).to_owned()),
            ["wrote", value] => run.wrote = value.parse().ok().map(|value| (time, value)),
            ["done"] => run.done = true,
            _ => {}
        }
    }
    runs
}
