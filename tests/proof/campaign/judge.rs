//! Judges a round by docs/promises.md. It is a pure function of the record.

mod flaws;
mod order;
mod statuses;

use std::time::Duration;

use super::faults::Effect;
use super::kind::Kind;
use super::plan::{Clocks, Mode, Plan};
use super::record::{Happened, Record, Rest, Run, Worker, Write};
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

/// By how much two servers may differ about the time of an event, in seconds.
const SAME_TIME: f64 = 0.5;

/// The promises that the judge checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    NoOverlap,
    OwnSlot,
    NoLostUpdate,
    NoLostFencedUpdate,
    FencesGrow,
    FirstComeFirstServed,
    NoLockWithoutHolder,
    NoIdleLock,
    DocumentedStatus,
    OneView,
}

/// The gaps in which commands may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    Paused,
    LostData,
    FailedOver,
    Freed,
    /// Last, because it excuses less than the others.
    Hurried,
}

#[derive(Debug)]
pub struct Violation {
    pub promise: Promise,
    pub what: String,
}

/// What the judge found, and how much it looked at.
#[derive(Debug, Default)]
pub struct Verdict {
    pub violations: Vec<Violation>,
    /// How many holds the server lost while all waiters knew them.
    pub reminded: usize,
    /// Overlaps in the gaps that the documentation names, and their lengths in seconds.
    pub documented: Vec<(Gap, f64)>,
    /// Overlaps while the machine starved, and no longer than that.
    pub starved: Vec<f64>,
    /// The exit statuses of workers that were refused or lost their lock, and why.
    pub causes: Vec<(i32, &'static str)>,
    pub updates: usize,
    /// Lost in rounds with a documented overlap.
    pub lost_updates: usize,
    pub fenced_updates: usize,
    pub rejected: usize,
    pub fences_compared: usize,
    pub orders_compared: usize,
    /// How many holds several orders of the URLs showed.
    pub views_compared: usize,
    /// The longest time in seconds for which no command ran although a live waiter waited and no
    /// fault was active.
    pub longest_idle: f64,
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
    verdict.slots(record);
    verdict.updates(record);
    verdict.fences(record);
    verdict.order(record);
    verdict.idle(record);
    verdict.statuses(record);
    verdict.views(record);
    if let Rest::Held(told) = &record.rest {
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

/// Whether these modes may hold a lock together.
fn compatible(modes: &[Mode]) -> bool {
    let Some(first) = modes.first() else { return true };
    modes.iter().all(|mode| mode == first)
        && match first {
            Mode::Exclusive => modes.len() == 1,
            Mode::Slots(count) => modes.len() <= *count,
            Mode::Shared | Mode::Reentrant(_) => true,
        }
}

/// Whether no two commands have the same number.
fn are_distinct(slots: &[&str]) -> bool {
    slots.iter().enumerate().all(|(index, slot)| !slots[..index].contains(slot))
}

impl Happened {
    fn span(&self) -> Span {
        (self.from, self.to)
    }

    /// The gap in which the lock may be granted although its holder still runs, if any.
    fn gap(&self) -> Option<Gap> {
        match self.effect {
            Effect::Loses => Some(Gap::LostData),
            Effect::FailsOver => Some(Gap::FailedOver),
            Effect::Frees => Some(Gap::Freed),
            Effect::Hurries => Some(Gap::Hurried),
            _ => None,
        }
    }

    /// Whether this hold may be older than the end of the fault.
    fn is_after(&self, run: &Run) -> bool {
        run.fence <= self.wall + RESOLUTION
    }
}

impl Worker {
    /// When this worker may run beside others, and why.
    fn excused(&self, record: &Record) -> Vec<(Span, Gap)> {
        let Some(run) = &self.run else { return Vec::new() };
        let paused = self.stops.iter().map(|stop| ((stop.0, stop.1 + RESUMING), Gap::Paused));
        let lost = record.faults.iter().filter_map(|fault| {
            let excuses = fault.is_after(run) && !record.all_others_knew(self, fault);
            // The last renewal of its lease was before the end of the fault.
            let until = fault.to + seconds(self.work.ttl);
            Some(((fault.from, until), fault.gap().filter(|_| excuses)?))
        });
        paused.chain(lost).collect()
    }

    /// The number of its slot, as its command saw it.
    fn slot(&self) -> Option<&str> {
        self.run.as_ref()?.slot.as_deref()
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
    /// Whether the round has no other loss, and all who could be granted the lock waited for this
    /// holder before the fault. They then remind the server.
    fn all_others_knew(&self, holder: &Worker, fault: &Happened) -> bool {
        let losses = self.faults.iter().filter(|fault| {
            fault.gap().is_some() || matches!(fault.effect, Effect::Revokes | Effect::Stops(_))
        });
        let Some(run) = &holder.run else { return false };
        let others = || self.workers.iter().filter(|worker| !std::ptr::eq(*worker, holder));
        fault.effect == Effect::Loses
            && losses.count() == 1
            && fault.is_after(run)
            && fault.from < run.last
            && others().all(|other| {
                // Its run, if any, does not precede the holder's.
                other.run.as_ref().is_none_or(|run| run.first > fault.from)
                    && other.queued.is_some_and(|queued| run.first < queued && queued < fault.from)
            })
    }

    /// How many holds were lost while all others knew them.
    fn reminded(&self) -> usize {
        let pairs = self.workers.iter().flat_map(|worker| {
            self.faults.iter().filter(|fault| self.all_others_knew(worker, fault))
        });
        pairs.count()
    }

    /// Whether a fault of a kind was there during this time.
    fn suffers(&self, during: Span, from: impl Fn(&Effect) -> bool) -> bool {
        self.faults.iter().any(|fault| from(&fault.effect) && meets(fault.span(), during))
    }
}

impl Verdict {
    fn breaks(&mut self, promise: Promise, what: String) {
        self.violations.push(Violation { promise, what });
    }

    /// One line for each violation.
    pub fn complaints(&self, seed: u64) -> String {
        let line = |it: &Violation| format!("BROKEN, seed {seed}: {:?}: {}\n", it.promise, it.what);
        self.violations.iter().map(line).collect()
    }

    fn overlaps(&mut self, record: &Record) {
        self.reminded = record.reminded();
        let excused: Vec<Vec<(Span, Gap)>> =
            record.workers.iter().map(|worker| worker.excused(record)).collect();
        let spans = record.workers.iter().filter_map(|worker| worker.run.as_ref());
        let spans = spans.flat_map(|run| run.spans.iter().copied());
        let spans = spans.chain(excused.iter().flatten().map(|(span, _)| *span));
        let mut times: Vec<f64> = spans.flat_map(|span| [span.0, span.1]).collect();
        times.sort_by(f64::total_cmp);
        let (mut documented, mut forbidden) = (Vec::new(), Vec::new());
        for pair in times.windows(2) {
            let (span, middle) = ((pair[0], pair[1]), f64::midpoint(pair[0], pair[1]));
            if span.1 <= span.0 {
                continue;
            }
            let running: Vec<usize> = (0..record.workers.len())
                .filter(|number| record.workers[*number].runs_at(middle))
                .collect();
            let is_compatible = |numbers: &[usize]| {
                let modes = numbers.iter().map(|number| record.workers[*number].work.mode);
                let slots = numbers.iter().filter_map(|number| record.workers[*number].slot());
                compatible(&modes.collect::<Vec<_>>()) && are_distinct(&slots.collect::<Vec<_>>())
            };
            if is_compatible(&running) {
                continue;
            }
            let gap = |number: usize| {
                let gaps = excused[number].iter();
                let gaps = gaps.filter(|(span, _)| span.0 <= middle && middle <= span.1);
                gaps.map(|(_, gap)| *gap).min()
            };
            let (gone, others): (Vec<usize>, Vec<usize>) =
                running.iter().partition(|number| gap(**number).is_some());
            match gone.first().and_then(|number| gap(*number)) {
                Some(gap) if is_compatible(&others) => append(&mut documented, span, gap),
                _ => append(&mut forbidden, span, running),
            }
        }
        self.documented.extend(documented.iter().map(|(span, gap)| (*gap, span.1 - span.0)));
        // The command is stopped when its lease should have ended, at the latest.
        let is_too_long = |(span, gap): &&(Span, Gap)| {
            *gap == Gap::Hurried && span.1 - span.0 > record.hurried + RESUMING
        };
        let too_long = documented.iter().filter(is_too_long).map(|(span, _)| (*span, Vec::new()));
        forbidden.extend(too_long);
        for (span, running) in forbidden {
            let length = span.1 - span.0;
            let before = (span.0 - length, span.1);
            let stuck = running.iter().map(|number| record.workers[*number].stuck(before));
            let stuck = stuck.fold(record.strain.longest_gap(span), f64::max);
            if stuck >= length / 2.0 {
                self.starved.push(length);
            } else {
                self.breaks(
                    Promise::NoOverlap,
                    format!("workers {running:?} overlap for {length:.6} s"),
                );
            }
        }
    }

    /// Each command has a number if its lock has slots.
    fn slots(&mut self, record: &Record) {
        for (number, worker) in record.workers.iter().enumerate() {
            let slot = worker.slot();
            let is_right = match worker.work.mode {
                _ if worker.run.is_none() => true,
                Mode::Slots(count) => {
                    slot.is_some_and(|slot| (1..=count).any(|number| slot == number.to_string()))
                }
                _ => slot.is_none(),
            };
            if !is_right {
                self.breaks(Promise::OwnSlot, format!("worker {number} ran with slot {slot:?}"));
            }
        }
    }

    fn updates(&mut self, record: &Record) {
        let runs = || record.workers.iter().filter_map(|worker| worker.run.as_ref());
        self.rejected = runs().filter(|run| run.rejected).count();
        let plain: Vec<&Write> = runs().filter_map(|run| run.plain.as_ref()).collect();
        let fenced: Vec<&Write> = runs().filter_map(|run| run.fenced.as_ref()).collect();
        (self.updates, self.fenced_updates) = (plain.len(), fenced.len());
        let lost = lost_updates(plain, record.counters.0);
        if lost > 0 && self.documented.is_empty() && self.starved.is_empty() {
            self.breaks(Promise::NoLostUpdate, format!("{lost} updates were lost"));
        } else {
            self.lost_updates = lost;
        }
        let lost = lost_updates(fenced, record.counters.1);
        if lost > 0 {
            let what = format!("{lost} updates of the fenced counter were lost");
            self.breaks(Promise::NoLostFencedUpdate, what);
        }
    }

    fn idle(&mut self, record: &Record) {
        let runs = record.workers.iter().filter_map(|worker| worker.run.as_ref());
        let mut taken: Vec<Span> = runs.map(|run| (run.first, run.last)).collect();
        let blank = record.plan.blank();
        taken.extend(record.faults.iter().map(|fault| (fault.from, fault.to + seconds(blank))));
        taken.sort_by(|a, b| a.0.total_cmp(&b.0));
        let dead = record.faults.iter().filter(|fault| {
            matches!(fault.effect, Effect::Stops(_) | Effect::Kills(_) | Effect::Terminates(_))
        });
        let bound = seconds(longest_idle(&record.plan, dead.count()));
        for worker in &record.workers {
            let end = worker.run.as_ref().map_or(worker.ended, |run| run.first);
            let stops = worker.stops.iter().map(|stop| stop.1).filter(|resumed| *resumed < end);
            let mut since = stops.fold(worker.started, f64::max);
            for span in taken.iter().chain([&(end, end)]) {
                let idle = span.0.min(end) - since;
                self.longest_idle = self.longest_idle.max(idle);
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

    /// Each order of the URLs shows the same. A server may answer too late to count, so a hold that
    /// it alone makes a majority for may be missing.
    fn views(&mut self, record: &Record) {
        let agree = |one: f64, other: f64| (one - other).abs() < SAME_TIME;
        let [first, others @ ..] = &record.shown[..] else { return };
        for one in first {
            for other in others.iter().flatten().filter(|other| other.id == one.id) {
                self.views_compared += 1;
                let is_same = one.ended == other.ended
                    && agree(one.ended_at, other.ended_at)
                    && agree(one.acquired_at, other.acquired_at);
                if !is_same {
                    return self.breaks(Promise::OneView, format!("{one:?} is also {other:?}"));
                }
            }
        }
    }
}

/// Adds a span with what it is about, or extends the last one by it.
fn append<T: PartialEq>(spans: &mut Vec<(Span, T)>, span: Span, about: T) {
    match spans.last_mut() {
        Some((last, of)) if last.1 >= span.0 && *of == about => last.1 = span.1,
        _ => spans.push((span, about)),
    }
}

/// How many of these writes, each one more than what it read, are missing in the counter.
fn lost_updates(mut writes: Vec<&Write>, last: u64) -> usize {
    writes.sort_by(|a, b| a.at.total_cmp(&b.at));
    let mut highest = 0;
    let mut lost = 0;
    for write in writes {
        lost += usize::from(write.value <= highest);
        highest = highest.max(write.value);
    }
    lost + usize::from(last < highest)
}
