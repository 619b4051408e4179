//! What happened in a round, as the judge reads it. All times are seconds of CLOCK_MONOTONIC.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::faults::Effect;
use super::plan::{Plan, Work};
use super::strain::Strain;
use super::time::Span;

/// A gap between two signs of life that ends a span: the command may have been stopped.
const SIGN_OF_LIFE: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Status(i32),
    Signal(i32),
    /// It was still running long after the round.
    Never,
}

/// An access to one of the two counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub at: f64,
    pub value: u64,
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
    pub plain: Option<Write>,
    pub fenced: Option<Write>,
    /// The fenced counter rejected it.
    pub rejected: bool,
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
#[derive(Clone, Debug)]
pub struct Happened {
    pub what: String,
    pub name: &'static str,
    pub effect: Effect,
    /// The workers that it concerns, by their numbers.
    pub concerned: Vec<usize>,
    pub from: f64,
    pub to: f64,
    /// The time of day at `to`, in microseconds: the latest that any server may have shown.
    pub wall: u64,
    /// The exit status of `release --force`.
    pub exit: Option<i32>,
}

/// What was left when all workers had ended and all leases had expired.
#[derive(Clone, Debug, PartialEq)]
pub enum Rest {
    Free,
    /// What the commands that expected a free lock printed.
    Held(String),
}

/// A hold as `inspect` shows it, in seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub id: String,
    /// `None` if it has not ended.
    pub ended: Option<String>,
    pub ended_at: f64,
    pub acquired_at: f64,
}

pub struct Record {
    pub plan: Plan,
    /// The time of day at time 0, in microseconds.
    pub wall: f64,
    pub workers: Vec<Worker>,
    pub faults: Vec<Happened>,
    pub strain: Strain,
    /// The sum of all steps of clocks forward, in seconds.
    pub hurried: f64,
    /// The final values of the plain and the fenced counter.
    pub counters: (u64, u64),
    /// Whether a replica has become the master.
    pub failed_over: bool,
    pub rest: Rest,
    /// All holds that `inspect` shows at the end, for each order of the URLs of a quorum.
    pub shown: Vec<Vec<Shown>>,
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
            last: time,
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
            ["done"] => run.done = true,
            ["rejected"] => run.rejected = true,
            [counter @ ("plain" | "fenced"), value] => {
                let write = value.parse().ok().map(|value| Write { at: time, value });
                match *counter {
                    "plain" => run.plain = write,
                    _ => run.fenced = write,
                }
            }
            _ => {}
        }
    }
    runs
}

impl Record {
    /// The start of the round.
    fn origin(&self) -> f64 {
        self.workers.iter().map(|worker| worker.started).fold(f64::INFINITY, f64::min)
    }

    /// The whole round for a person, in seconds from its start.
    pub fn story(&self) -> String {
        let origin = self.origin();
        let at = |time: f64| format!("{:.3}", time - origin);
        let plan = &self.plan;
        let mut text = format!(
            "{:?}, seed {}, {}{}\n",
            plan.kind,
            plan.seed,
            if plan.staged { "staged, " } else { "" },
            format_args!("--min-replicas {}", plan.min_replicas)
        );
        for fault in &self.faults {
            let Happened { what, effect, from, to, wall, exit, .. } = fault;
            let (from, to) = (at(*from), at(*to));
            let _ = writeln!(text, "  {from} to {to}: {what}: {effect:?} ({wall}) {exit:?}");
        }
        for (number, worker) in self.workers.iter().enumerate() {
            let _ = writeln!(text, "  worker {number}: {:?}", worker.work);
            let _ = writeln!(
                text,
                "    {} to {}: {:?}, queued {:?}, stopped {:?}",
                at(worker.started),
                at(worker.ended),
                worker.end,
                worker.queued.map(at),
                worker.stops.iter().map(|stop| (at(stop.0), at(stop.1))).collect::<Vec<_>>()
            );
            if let Some(run) = &worker.run {
                let spans: Vec<_> = run.spans.iter().map(|span| (at(span.0), at(span.1))).collect();
                let _ = writeln!(
                    text,
                    "    ran {spans:?}, fence {}, slot {:?}, done {}, plain {:?}, fenced {:?}, rejected {}",
                    run.fence,
                    run.slot,
                    run.done,
                    run.plain.as_ref().map(|write| (at(write.at), write.value)),
                    run.fenced.as_ref().map(|write| (at(write.at), write.value)),
                    run.rejected
                );
            }
            if !worker.stuck.is_empty() {
                let stuck: Vec<_> =
                    worker.stuck.iter().map(|span| (at(span.0), at(span.1))).collect();
                let _ = writeln!(text, "    stuck {stuck:?}");
            }
            for (time, line) in &worker.told {
                let _ = writeln!(text, "    {} {line}", at(*time));
            }
        }
        if self.failed_over {
            text += "  a replica has become the master\n";
        }
        let gaps: Vec<_> = self.strain.gaps.iter().map(|gap| (at(gap.0), at(gap.1))).collect();
        let end = self.workers.iter().map(|worker| worker.ended).fold(origin, f64::max);
        let starved = self.strain.starved((origin, end), &[]);
        let _ = writeln!(text, "  counters {:?}, rest {:?}", self.counters, self.rest);
        let stuck: Vec<_> = self.strain.stuck.iter().map(|span| (at(span.0), at(span.1))).collect();
        let _ = writeln!(text, "  servers stuck {stuck:?}");
        let _ = writeln!(text, "  starved for {starved:.3} s; gaps of processors: {gaps:?}");
        text
    }
}
