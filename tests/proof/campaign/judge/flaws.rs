//! Each judgement can fail: records with one flaw, and the promise that it breaks.

use std::time::Duration;

use super::Promise::{
    self, DocumentedStatus, FencesGrow, FirstComeFirstServed, NoIdleLock, NoLockWithoutHolder,
    NoLostUpdate, NoOverlap,
};
use super::judge;
use crate::campaign::faults::{Effect, Hit, What};
use crate::campaign::kind::Kind;
use crate::campaign::plan::{Mode, Plan, Work};
use crate::campaign::record::{End, Happened, Record, Run, Worker};
use crate::campaign::strain::Strain;
use crate::campaign::time::Span;

/// A name moves, and the new master has all, or may lack what it has not received.
const MOVES: Effect = Effect::Moves { whole: true, frees: false };
const LAGS: Effect = Effect::Moves { whole: false, frees: true };

/// A worker whose command runs from `first` to `last`.
fn worker(number: usize, mode: Mode, first: f64, last: f64) -> Worker {
    let slot = match mode {
        Mode::Slots(count) => Some((number % count + 1).to_string()),
        _ => None,
    };
    let fence = 1_000_000 + (first * 1e6) as u64;
    let spans = vec![(first, last)];
    let second = Duration::from_secs(1);
    Worker {
        work: Work { mode, ttl: second, lasting: second, ..Work::default() },
        started: 0.0,
        queued: None,
        run: Some(Run { fence, slot, first, last, spans, done: true, wrote: None }),
        ended: last,
        end: End::Status(0),
        stops: Vec::new(),
        stuck: Vec::new(),
        told: Vec::new(),
    }
}

fn record(workers: &[(Mode, f64, f64)]) -> Record {
    let workers = workers.iter().enumerate();
    let workers = workers.map(|(number, (mode, first, last))| worker(number, *mode, *first, *last));
    let workers: Vec<Worker> = workers.collect();
    let works = workers.iter().map(|worker| worker.work.clone()).collect();
    Record {
        plan: Plan { kind: Kind::Server, seed: 0, min_replicas: 0, works, faults: Vec::new() },
        workers,
        faults: Vec::new(),
        strain: Strain::default(),
        hurried: 0.0,
        counter: 0,
        held: None,
    }
}

/// Two exclusive workers, one after the other.
fn in_order() -> Record {
    record(&[(Mode::Exclusive, 0.1, 0.5), (Mode::Exclusive, 0.6, 0.9)])
}

/// Two exclusive workers at once, from 0.4 to 0.5.
fn overlapping() -> Record {
    record(&[(Mode::Exclusive, 0.1, 0.5), (Mode::Exclusive, 0.4, 0.9)])
}

fn fault(effect: Effect, from: f64, to: f64) -> Happened {
    let wall = 1_000_000 + (to * 1e6) as u64;
    let what = What::OnServer(0, Hit::Flush);
    Happened { what, effect, from, to, wall, exit: None }
}

impl Record {
    fn but(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn hit(self, effect: Effect, from: f64, to: f64) -> Self {
        self.but(|it| it.faults.push(fault(effect, from, to)))
    }

    fn worker(self, number: usize, change: impl FnOnce(&mut Worker)) -> Self {
        self.but(|it| change(&mut it.workers[number]))
    }

    fn run(self, number: usize, change: impl FnOnce(&mut Run)) -> Self {
        self.worker(number, |it| change(it.run.as_mut().unwrap()))
    }

    fn queued(self, number: usize, at: f64) -> Self {
        self.worker(number, |it| it.queued = Some(at))
    }

    fn stopped(self, span: Span) -> Self {
        self.worker(0, |it| it.stops.push(span))
    }

    /// With another end of the first worker, whose command may not have run.
    fn ended(self, end: End, ran: bool) -> Self {
        self.worker(0, |it| {
            it.end = end;
            it.run = it.run.take().filter(|_| ran);
        })
    }

    fn on_a_quorum(self) -> Self {
        self.but(|it| it.plan.kind = Kind::Quorum(3))
    }
}

#[track_caller]
fn check<'a>(cases: impl IntoIterator<Item = (&'a str, Record, &'a [Promise])>) {
    for (name, record, promises) in cases {
        let verdict = judge(&record);
        let broken: Vec<Promise> = verdict.violations.iter().map(|it| it.0).collect();
        assert_eq!(broken, promises, "{name}: {:?}\n{record:?}", verdict.violations);
    }
}

#[test]
fn an_overlap_breaks_a_promise_unless_a_documented_gap_excuses_all_of_it() {
    let late = record(&[(Mode::Exclusive, 0.1, 1.5), (Mode::Exclusive, 1.4, 1.9)]);
    let hurried = |by| overlapping().hit(Effect::Hurries, 0.3, 0.3).but(|it| it.hurried = by);
    let gap = |span| overlapping().but(|it| it.strain.gaps.push(span));
    let stuck = |span| overlapping().worker(0, |it| it.stuck.push(span));
    check([
        ("one after the other", in_order(), &[][..]),
        ("at once", overlapping(), &[NoOverlap]),
        ("paused", overlapping().stopped((0.2, 0.6)), &[]),
        ("paused too early", overlapping().stopped((0.2, 0.45)), &[NoOverlap]),
        ("lost", overlapping().hit(Effect::Loses, 0.3, 0.3), &[]),
        ("failed over", overlapping().hit(Effect::FailsOver, 0.3, 0.3), &[]),
        ("freed", overlapping().hit(Effect::Frees, 0.3, 0.3), &[]),
        ("lost before both", overlapping().hit(Effect::Loses, 0.05, 0.05), &[NoOverlap]),
        ("lost long ago", late.hit(Effect::Loses, 0.3, 0.3), &[NoOverlap]),
        ("clock set forward", hurried(0.2), &[]),
        ("clock set forward by less", hurried(0.05), &[NoOverlap]),
        ("starved", gap((0.4, 0.46)), &[]),
        ("starved for less", gap((0.4, 0.44)), &[NoOverlap]),
        ("stuck", stuck((0.45, 0.51)), &[]),
        ("stuck for less", stuck((0.45, 0.49)), &[NoOverlap]),
    ]);
    for frees in [true, false] {
        let effect = Effect::Moves { whole: false, frees };
        let promises: &[Promise] = if frees { &[] } else { &[NoOverlap] };
        check([("name moved", overlapping().hit(effect, 0.3, 0.3), promises)]);
    }
    for effect in [Effect::Revokes, Effect::Breaks, Effect::Delays, Effect::Prolongs] {
        check([("no gap", overlapping().hit(effect, 0.3, 0.6), &[NoOverlap][..])]);
    }
}

#[test]
fn only_compatible_modes_and_different_slots_may_overlap() {
    let (slots, one, two) = (Mode::Slots(2), Mode::Reentrant(1), Mode::Reentrant(2));
    let beside = |first, second| record(&[(first, 0.1, 0.9), (second, 0.2, 0.9)]);
    let three = record(&[(slots, 0.1, 0.3), (slots, 0.15, 0.3), (slots, 0.2, 0.3)]);
    let slot = |slot: &str| beside(slots, slots).run(1, |it| it.slot = Some(slot.to_owned()));
    check([
        ("shared", beside(Mode::Shared, Mode::Shared), &[][..]),
        ("shared and exclusive", beside(Mode::Shared, Mode::Exclusive), &[NoOverlap]),
        ("one owner", beside(one, one), &[]),
        ("two owners", beside(one, two), &[NoOverlap]),
        ("two slots", beside(slots, slots), &[]),
        ("three in two slots", three, &[NoOverlap]),
        ("the same slot", slot("1"), &[NoOverlap]),
        ("a slot too much", slot("3"), &[NoOverlap]),
    ]);
}

#[test]
fn a_lost_update_or_a_fencing_token_that_does_not_grow_breaks_a_promise() {
    let wrote = |last: u64, counter| {
        let first = in_order().run(0, |it| it.wrote = Some((0.5, 1)));
        first.run(1, |it| it.wrote = Some((0.9, last))).but(|it| it.counter = counter)
    };
    let fence = |fence| in_order().run(1, |it| it.fence = fence);
    check([
        ("both", wrote(2, 2), &[][..]),
        ("the last", wrote(2, 1), &[NoLostUpdate]),
        ("the first", wrote(1, 1), &[NoLostUpdate]),
        ("smaller", fence(1), &[FencesGrow]),
        ("equal", fence(1_100_000), &[FencesGrow, FencesGrow]),
    ]);
}

#[test]
fn overtaking_a_waiter_breaks_a_promise() {
    let overtaken = |mode, first| {
        let workers = [(Mode::Exclusive, 0.1, 0.5), (mode, first, 2.0), (mode, 0.6, 0.8)];
        record(&workers).queued(1, 0.2).worker(2, |it| it.started = 0.3)
    };
    let exclusive = || overtaken(Mode::Exclusive, 0.9);
    let earlier = || exclusive().worker(2, |it| it.started = 0.1);
    let gave_up = |limit| {
        exclusive().worker(1, |it| {
            (it.run, it.ended, it.end) = (None, 1.0, End::Status(75));
            it.work.limit = Some(Duration::from_millis(limit));
        })
    };
    // On a quorum, a failed server leaves the order as it is.
    let quorum = |record: Record| record.on_a_quorum().hit(Effect::FailsOne(0), 0.3, 0.4);
    let parts = |wires| Effect::Parts([0, wires, 0, 0, 0, 0]);
    let parted = |wires| quorum(exclusive()).hit(parts(wires), 0.3, 0.4);
    let hurried = |by| exclusive().hit(Effect::Hurries, 0.3, 0.3).but(|it| it.hurried = by);
    check([
        ("overtaken", exclusive(), &[FirstComeFirstServed][..]),
        ("started before the other queued", earlier(), &[]),
        ("name moved", exclusive().hit(MOVES, 0.3, 0.4), &[FirstComeFirstServed]),
        ("queue left behind", exclusive().hit(LAGS, 0.3, 0.4), &[]),
        ("unheard", exclusive().hit(Effect::Delays, 0.3, 0.4), &[]),
        ("freed unclaimed", exclusive().hit(Effect::Frees, 0.55, 0.55), &[]),
        ("freed", exclusive().hit(Effect::Frees, 0.3, 0.3), &[FirstComeFirstServed]),
        ("presumed dead", hurried(2.1), &[]),
        ("clock set forward by less", hurried(1.9), &[FirstComeFirstServed]),
        ("gave up later", gave_up(1_000), &[FirstComeFirstServed]),
        ("gave up before", gave_up(500), &[]),
        ("admitted together", quorum(overtaken(Mode::Shared, 0.7)), &[]),
        ("not together", quorum(overtaken(Mode::Shared, 1.0)), &[FirstComeFirstServed]),
        ("not compatible", quorum(exclusive()), &[FirstComeFirstServed]),
        ("without a majority", parted(0b110), &[]),
        ("with a majority", parted(0b001), &[FirstComeFirstServed]),
    ]);
}

#[test]
fn a_lock_that_stays_idle_or_held_breaks_a_promise() {
    let idle = || record(&[(Mode::Exclusive, 0.1, 0.5), (Mode::Exclusive, 6.6, 6.9)]);
    let held = in_order().but(|it| it.held = Some("held".into()));
    check([
        ("idle", idle(), &[NoIdleLock][..]),
        ("a fault in between", idle().hit(Effect::Delays, 3.0, 4.0), &[]),
        ("held", held, &[NoLockWithoutHolder]),
    ]);
}

#[test]
fn an_exit_status_without_a_cause_breaks_a_promise() {
    let statuses = [1, 64, 69, 70, 75, 76, 77, 78, 79].map(End::Status);
    for end in statuses.into_iter().chain([End::Signal(9), End::Signal(11), End::Never]) {
        check([("undocumented", in_order().ended(end, true), &[DocumentedStatus][..])]);
    }
    let ended = |status, ran| in_order().ended(End::Status(status), ran);
    let failed = Happened { exit: Some(70), ..fault(Effect::Revokes, 0.2, 0.3) };
    // The machine starved for a tenth of the TTL.
    let starved = |until| {
        ended(76, true).but(|it| {
            it.strain.gaps = vec![(0.2, 0.22), (0.21, 0.23)];
            it.strain.stuck.push((0.22, until));
        })
    };
    // Each worker counts what it is cut off from.
    let parted = |wires| {
        let one = ended(69, false).on_a_quorum().hit(Effect::FailsOne(0), 0.2, 0.2);
        one.hit(Effect::Parts([wires, 0b111, 0, 0, 0, 0]), 0.2, 0.3)
    };
    let one = |from| ended(76, true).on_a_quorum().hit(Effect::FailsOne(0), from, from);
    let moved = |effect, from| ended(76, true).hit(effect, from, 0.3);
    let waiter = |status| ended(status, false).queued(0, 0.1).hit(MOVES, 0.2, 0.3);
    check([
        ("moved with its hold", moved(MOVES, 0.2), &[DocumentedStatus][..]),
        ("without a master for long", moved(MOVES, 0.15), &[]),
        ("received before", moved(LAGS, 0.2), &[DocumentedStatus]),
        ("never received", moved(LAGS, 0.2).run(0, |it| it.first = 0.25), &[]),
        ("a waiter sent home", waiter(78), &[DocumentedStatus]),
        ("a waiter without a limit", waiter(69), &[DocumentedStatus]),
        ("a first request of a replica", ended(78, false).hit(MOVES, 0.2, 0.3), &[]),
    ]);
    check([
        ("freed before its reply", ended(79, false).hit(Effect::Frees, 0.2, 0.3), &[][..]),
        ("cut short", in_order().run(0, |it| it.done = false), &[DocumentedStatus]),
        ("a late answer", ended(69, false).queued(0, 0.1).hit(Effect::Prolongs, 0.2, 0.3), &[]),
        ("a bug of release", in_order().but(|it| it.faults.push(failed)), &[DocumentedStatus]),
        ("one server, twice", one(-1.0).hit(Effect::FailsOne(0), 0.2, 0.2), &[DocumentedStatus]),
        ("two servers, one by one", one(0.2).hit(Effect::FailsOne(2), 0.3, 0.3), &[]),
        ("cut off from two", parted(0b101), &[]),
        ("cut off from another", parted(0b010), &[]),
        ("cut off from one", parted(0b001), &[DocumentedStatus]),
        ("starved", starved(0.31), &[]),
        ("starved for less", starved(0.25), &[DocumentedStatus]),
    ]);
}

#[test]
fn only_some_faults_cause_a_loss_or_a_refusal() {
    for (effect, lost, refused) in [
        (Effect::Delays, true, true),
        (Effect::Loses, true, true),
        (Effect::Stops(0), true, true),
        (Effect::Revokes, true, false),
        (Effect::Hurries, true, false),
        (Effect::Prolongs, false, false),
        (Effect::Breaks, false, true),
        (Effect::Stops(1), false, false),
        (Effect::Ends(1), false, false),
        (Effect::FailsOne(0), false, false),
    ] {
        for (status, is_cause) in [(76, lost), (69, refused)] {
            let ended = || in_order().on_a_quorum().ended(End::Status(status), status == 76);
            let promises: &[Promise] = if is_cause { &[] } else { &[DocumentedStatus] };
            let name = format!("{status} after {effect:?}");
            check([(&*name, ended().hit(effect, 0.2, 0.3), promises)]);
        }
    }
    let lost = || in_order().ended(End::Status(76), true);
    let what = What::Part([0, 1, 0, 0, 0, 0]);
    let of_others = Happened { what, ..fault(Effect::Delays, 0.2, 0.3) };
    check([
        ("too early", lost().hit(Effect::Delays, -2.0, -1.9), &[DocumentedStatus][..]),
        ("for others", lost().but(|it| it.faults.push(of_others)), &[DocumentedStatus]),
    ]);
}
