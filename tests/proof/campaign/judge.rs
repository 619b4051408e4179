//! Judges a round by docs/promises.md. It is a pure function of the record.

mod flaws;
mod order;
mod statuses;

use std::collections::BTreeSet;
use std::time::Duration;

use super::faults::{Effect, Hit, Move, What};
use super::kind::Kind;
use super::plan::{Clocks, Mode, Plan};
use super::record::{Happened, Record, Run, Worker};
use super::strain::Strain;
use super::time::Span;

/// A token counts the milliseconds of the server's clock, in microseconds.
const RESOLUTION: u64 = 1_000;
/// How long rlock needs to kill a command once it is continued, in seconds.
const RESUMING: f64 = 0.02;
/// How long a grant waits for its waiter.
const CLAIM_WINDOW: Duration = Duration::from_secs(2);
/// How long a loaded machine may need to start the programs of a handoff.
const STARTING: Duration = Duration::from_secs(1);

/// The promises that the judge checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    NoOverlap,
    NoLostUpdate,
    FencesGrow,
    FirstComeFirstServed,
    NoLockWithoutHolder,
    NoIdleLock,
    DocumentedStatus,
}

/// What the judge found.
#[derive(Debug, Default)]
pub struct Verdict {
    pub violations: Vec<(Promise, String)>,
    /// How many overlaps are excused.
    pub excused: usize,
}

/// The longest time for which no command may run although a live waiter waits and no fault is
/// active. Up to `dead` dead workers may be in the queue.
pub fn longest_idle(plan: &Plan, dead: usize) -> Duration {
    let ttl = plan.works.iter().map(|work| work.ttl).max().unwrap_or_default();
    let kept = plan.works.iter().filter_map(|work| work.at_least).max().unwrap_or_default();
    let dead = u32::try_from(dead).unwrap_or(u32::MAX);
    // The heartbeat is a third of the TTL.
    let bound = ttl.max(kept) + ttl / 3 + CLAIM_WINDOW * (1 + dead);
    // Under another clock since boot, a lease in a file counts anew from its first use.
    let has_clocks = plan.works.iter().any(|work| work.clocks == Clocks::Boot);
    bound * (1 + u32::from(plan.kind == Kind::Files && has_clocks)) + STARTING
}

pub fn judge(record: &Record) -> Verdict {
    let mut verdict = Verdict::default();
    verdict.overlaps(record);
    verdict.updates(record);
    verdict.fences(record);
    verdict.order(record);
    verdict.idle(record);
    verdict.statuses(record);
    if let Some(told) = &record.held {
        verdict.breaks(Promise::NoLockWithoutHolder, format!("still held: {told}"));
    }
    verdict
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn meets(a: Span, b: Span) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

/// Whether clients with these modes may hold a lock together.
fn join(one: Mode, other: Mode) -> bool {
    one == other && one != Mode::Exclusive
}

/// Whether these workers may hold a lock together, those with slots under different numbers.
fn compatible(workers: &[&Worker]) -> bool {
    let Some(first) = workers.first() else { return true };
    let mode = first.work.mode;
    let may_join = workers.len() == 1 || workers.iter().all(|other| join(mode, other.work.mode));
    let Mode::Slots(count) = mode else { return may_join };
    let slots: BTreeSet<usize> = workers.iter().filter_map(|worker| worker.slot(count)).collect();
    may_join && slots.len() == workers.len()
}

impl Happened {
    fn span(&self) -> Span {
        (self.from, self.to)
    }

    /// Whether the lock may be granted although its holder still runs.
    fn may_free(&self) -> bool {
        matches!(
            self.effect,
            Effect::Loses
                | Effect::FailsOver
                | Effect::Moves { frees: true, .. }
                | Effect::Frees
                | Effect::Hurries
        )
    }

    fn is_move(&self) -> bool {
        matches!(self.effect, Effect::Moves { .. })
    }

    /// Whether this worker loses its hold because the name moves: the new master has not received
    /// it, or cannot renew it for too long. A third of a TTL lies between the time for a renewal
    /// and that for stopping the command, and each pause between two attempts is twice the last.
    fn loses_hold(&self, worker: &Worker) -> bool {
        // Until its first renewal, a hold on a quorum may be on no more than a majority.
        if let (What::OnServer(_, hit), Effect::FailsOne(_)) = (self.what, self.effect) {
            let Some(first) = worker.run.as_ref().map(|run| run.first) else { return false };
            let renewed = first + seconds(worker.work.ttl) / 3.0;
            return match hit {
                Hit::Move(Move::Lag) => self.from <= first && self.to <= renewed,
                Hit::Down | Hit::RestartEmpty => self.from <= renewed && self.to >= first,
                _ => false,
            };
        }
        let is_new = worker.run.as_ref().is_some_and(|run| run.first >= self.from);
        let is_long = self.to - self.from > seconds(worker.work.ttl) / 8.0;
        let Effect::Moves { frees, .. } = self.effect else { return false };
        is_long || frees && is_new
    }

    /// Whether this hold may be older than the end of the fault.
    fn is_after(&self, run: &Run) -> bool {
        run.fence <= self.wall + RESOLUTION
    }
}

impl Worker {
    /// When this worker may run beside others, and for how many seconds.
    fn excused(&self, record: &Record) -> Vec<(Span, f64)> {
        let Some(run) = &self.run else { return Vec::new() };
        let paused = self.stops.iter().map(|stop| ((stop.0, stop.1 + RESUMING), f64::INFINITY));
        let lost = record.faults.iter().filter(|fault| fault.may_free() && fault.is_after(run));
        let lost = lost.map(|fault| {
            // The last renewal of its lease was before the end of the fault.
            let span = (fault.from, fault.to + seconds(self.work.ttl));
            match fault.effect {
                // The command is stopped when its lease should have ended, at the latest.
                Effect::Hurries => (span, record.hurried + RESUMING),
                _ => (span, f64::INFINITY),
            }
        });
        paused.chain(lost).collect()
    }

    /// The number of its slot, as its command saw it, if it is one of so many.
    fn slot(&self, count: usize) -> Option<usize> {
        let slot = self.run.as_ref()?.slot.as_ref()?.parse().ok()?;
        (1..=count).contains(&slot).then_some(slot)
    }

    fn runs_at(&self, time: f64) -> bool {
        let runs = |run: &Run| run.spans.iter().any(|span| span.0 <= time && time <= span.1);
        self.run.as_ref().is_some_and(runs)
    }

    /// For how many seconds of this time the machine did not run it, in all.
    fn stuck(&self, during: Span) -> f64 {
        Strain::default().starved(during, &self.stuck)
    }

    fn was_stopped(&self, between: Span) -> bool {
        self.stops.iter().any(|stop| meets(*stop, between))
    }
}

impl Record {
    /// Whether this worker was killed or told to end during this time.
    fn was_hit(&self, number: usize, during: Span) -> bool {
        self.suffers(during, |effect| *effect == Effect::Ends(number))
    }

    /// Whether a fault of a kind was there during this time.
    fn suffers(&self, during: Span, from: impl Fn(&Effect) -> bool) -> bool {
        self.faults.iter().any(|fault| from(&fault.effect) && meets(fault.span(), during))
    }
}

impl Verdict {
    fn breaks(&mut self, promise: Promise, what: String) {
        self.violations.push((promise, what));
    }

    fn overlaps(&mut self, record: &Record) {
        let workers = &record.workers;
        let excused: Vec<_> = workers.iter().map(|worker| worker.excused(record)).collect();
        let spans = workers.iter().filter_map(|worker| worker.run.as_ref());
        let spans = spans.flat_map(|run| run.spans.iter().copied());
        let spans = spans.chain(excused.iter().flatten().map(|(span, _)| *span));
        let mut times: Vec<f64> = spans.flat_map(|span| [span.0, span.1]).collect();
        times.sort_by(f64::total_cmp);
        let are_compatible = |numbers: &[usize]| {
            compatible(&numbers.iter().map(|number| &workers[*number]).collect::<Vec<_>>())
        };
        // With the seconds for which each is excused.
        let mut overlaps: Vec<(Span, f64, Vec<usize>)> = Vec::new();
        for pair in times.windows(2) {
            let (span, middle) = ((pair[0], pair[1]), f64::midpoint(pair[0], pair[1]));
            let numbers = 0..workers.len();
            let running: Vec<usize> =
                numbers.filter(|number| workers[*number].runs_at(middle)).collect();
            if span.1 <= span.0 || are_compatible(&running) {
                continue;
            }
            let longest = |number: &usize| {
                let excuses = excused[*number].iter();
                let excuses = excuses.filter(|(span, _)| span.0 <= middle && middle <= span.1);
                excuses.map(|(_, longest)| *longest).fold(0.0, f64::max)
            };
            let (gone, others): (Vec<usize>, Vec<usize>) =
                running.iter().partition(|number| longest(number) > 0.0);
            let longest = if are_compatible(&others) { longest(&gone[0]) } else { 0.0 };
            match overlaps.last_mut() {
                Some((last, of, who))
                    if last.1 >= span.0 && *of == longest && (longest > 0.0 || *who == running) =>
                {
                    last.1 = span.1;
                }
                _ => overlaps.push((span, longest, running)),
            }
        }
        for (span, longest, running) in overlaps {
            let length = span.1 - span.0;
            let before = (span.0 - length, span.1);
            let stuck = running.iter().map(|number| workers[*number].stuck(before));
            let stuck = stuck.fold(record.strain.longest_gap(span), f64::max);
            if length <= longest || stuck >= length / 2.0 {
                self.excused += 1;
            } else {
                let what = format!("workers {running:?} overlap for {length:.6} s");
                self.breaks(Promise::NoOverlap, what);
            }
        }
    }

    /// The counter checks fencing tokens, so that it loses nothing in any gap.
    fn updates(&mut self, record: &Record) {
        let runs = record.workers.iter().filter_map(|worker| worker.run.as_ref());
        let mut writes: Vec<(f64, u64)> = runs.filter_map(|run| run.wrote).collect();
        writes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let values: Vec<u64> = writes.into_iter().map(|(_, value)| value).collect();
        // Each is one more than what its command read. A last one may have been cut off.
        let last = values.last().copied().unwrap_or(0);
        if !values.iter().is_sorted_by(|a, b| a < b) || last > record.counter {
            let what = format!("the counter is {} after {values:?}", record.counter);
            self.breaks(Promise::NoLostUpdate, what);
        }
    }

    fn idle(&mut self, record: &Record) {
        let runs = record.workers.iter().filter_map(|worker| worker.run.as_ref());
        let mut taken: Vec<Span> = runs.map(|run| (run.first, run.last)).collect();
        let blank = record.plan.blank();
        taken.extend(record.faults.iter().map(|fault| (fault.from, fault.to + seconds(blank))));
        taken.sort_by(|a, b| a.0.total_cmp(&b.0));
        let dead = record.faults.iter();
        let dead = dead.filter(|fault| matches!(fault.effect, Effect::Stops(_) | Effect::Ends(_)));
        let bound = seconds(longest_idle(&record.plan, dead.count()));
        for worker in &record.workers {
            let end = worker.run.as_ref().map_or(worker.ended, |run| run.first);
            let stops = worker.stops.iter().map(|stop| stop.1).filter(|resumed| *resumed < end);
            let mut since = stops.fold(worker.started, f64::max);
            for span in taken.iter().chain([&(end, end)]) {
                let idle = span.0.min(end) - since;
                // A starved machine is idle too.
                if idle > bound + record.strain.starved((since, end), &worker.stuck) {
                    let what = format!("nobody ran for {idle:.3} s; the bound is {bound:.3} s");
                    self.breaks(Promise::NoIdleLock, what);
                    return;
                }
                since = since.max(span.1);
            }
        }
    }
}
