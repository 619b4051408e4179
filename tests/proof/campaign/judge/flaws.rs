//! Each judgement can fail: records with one flaw, and the promise that it breaks.

use std::time::Duration;

use super::{Promise, judge};
use crate::campaign::faults::Effect;
use crate::campaign::kind::Kind;
use crate::campaign::plan::{Clocks, Mode, Plan, Style, WaitLimit, Work};
use crate::campaign::record::{End, Happened, Record, Rest, Shown, Worker, runs};
use crate::campaign::strain::Strain;

/// What a command of the worker writes each millisecond, from `first` to `last`.
fn signs(number: usize, fence: u64, first: f64, last: f64) -> String {
    let count = ((last - first) * 1e3) as u64;
    let line = |at: f64| format!("{number} {fence} {at:.6}\n");
    (0..=count).map(|milli| line(first + milli as f64 / 1e3)).collect()
}

fn worker(number: usize, mode: Mode, first: f64, last: f64) -> Worker {
    let fence = 1_000_000 + (first * 1e6) as u64;
    let mut text = signs(number, fence, first, last);
    if let Mode::Slots(count) = mode {
        text += &format!("{number} {fence} {last:.6} slot {}\n", number % count + 1);
    }
    text += &format!("{number} {fence} {last:.6} done\n");
    let work = Work {
        clocks: Clocks::OfHost,
        mode,
        style: Style::Exec,
        limit: WaitLimit::Forever,
        ttl: Duration::from_secs(1),
        at_least: None,
        lasting: Duration::from_secs(1),
        stubborn: false,
        min_replicas: 0,
        next: false,
        start: Duration::ZERO,
    };
    Worker {
        work,
        started: 0.0,
        queued: None,
        run: runs(&text).remove(&number),
        ended: last,
        end: End::Status(0),
        stops: Vec::new(),
        stuck: Vec::new(),
        told: Vec::new(),
    }
}

fn record(workers: Vec<Worker>) -> Record {
    let works = workers.iter().map(|worker| worker.work.clone()).collect();
    let (kind, faults) = (Kind::Server, Vec::new());
    let plan = Plan { kind, seed: 0, staged: false, min_replicas: 0, works, faults };
    Record {
        plan,
        wall: 1e6,
        workers,
        faults: Vec::new(),
        strain: Strain::default(),
        hurried: 0.0,
        counters: (0, 0),
        failed_over: false,
        rest: Rest::Free,
        shown: Vec::new(),
    }
}

/// Two exclusive workers, one after the other.
fn in_order() -> Record {
    record(vec![worker(0, Mode::Exclusive, 0.1, 0.5), worker(1, Mode::Exclusive, 0.6, 0.9)])
}

/// Two exclusive workers at once, from 0.4 to 0.5.
fn overlapping() -> Record {
    record(vec![worker(0, Mode::Exclusive, 0.1, 0.5), worker(1, Mode::Exclusive, 0.4, 0.9)])
}

fn fault(effect: Effect, from: f64, to: f64) -> Happened {
    let wall = 1_000_000 + (to * 1e6) as u64;
    let (what, name, concerned) = ("a fault".into(), "a fault", (0..9).collect());
    Happened { what, name, effect, concerned, from, to, wall, exit: None }
}

#[track_caller]
fn breaks(record: &Record, promises: &[Promise]) {
    let verdict = judge(record);
    let broken: Vec<Promise> = verdict.violations.iter().map(|it| it.promise).collect();
    assert_eq!(broken, promises, "{:?}\n{}", verdict.violations, record.story());
}

#[test]
fn commands_one_after_the_other_break_nothing() {
    breaks(&in_order(), &[]);
    let verdict = judge(&in_order());
    assert_eq!(verdict.fences_compared, 1);
    assert!((verdict.longest_idle - 0.1).abs() < 1e-3, "{verdict:?}");
}

#[test]
fn an_overlap_of_incompatible_modes_breaks_a_promise() {
    breaks(&overlapping(), &[Promise::NoOverlap]);
    let (shared, slots) = (Mode::Shared, Mode::Slots(2));
    let (one, two) = (Mode::Reentrant(1), Mode::Reentrant(2));
    for (modes, allowed) in [
        (vec![shared, shared, shared], true),
        (vec![shared, Mode::Exclusive], false),
        (vec![slots, slots], true),
        (vec![slots, slots, slots], false),
        (vec![slots, Mode::Slots(3)], false),
        (vec![one, one], true),
        (vec![one, two], false),
        (vec![one, Mode::Exclusive], false),
    ] {
        let workers = modes.iter().enumerate();
        let workers = workers.map(|(number, mode)| {
            let first = 0.1 + number as f64 / 100.0;
            worker(number, *mode, first, 0.9)
        });
        let promises: &[Promise] = if allowed { &[] } else { &[Promise::NoOverlap] };
        breaks(&record(workers.collect()), promises);
    }
}

#[test]
fn a_slot_that_two_commands_have_breaks_a_promise() {
    let two = |slots: [&str; 2]| {
        let mut record = overlapping();
        for (worker, slot) in record.workers.iter_mut().zip(slots) {
            worker.work.mode = Mode::Slots(2);
            let slot = Some(slot.to_owned()).filter(|slot| !slot.is_empty());
            worker.run.as_mut().unwrap().slot = slot;
        }
        record
    };
    breaks(&two(["2", "1"]), &[]);
    breaks(&two(["1", "1"]), &[Promise::NoOverlap]);
    for wrong in ["", "0", "3", "x"] {
        breaks(&two(["1", wrong]), &[Promise::OwnSlot]);
    }
    let mut exclusive = in_order();
    exclusive.workers[1].run.as_mut().unwrap().slot = Some("1".into());
    breaks(&exclusive, &[Promise::OwnSlot]);
}

#[test]
fn a_pause_excuses_the_overlaps_of_the_paused_holder_until_it_ends() {
    for (paused, promises) in [
        ((0.2, 0.6), &[][..]),
        ((0.2, 0.45), &[Promise::NoOverlap]),
        ((0.6, 0.9), &[Promise::NoOverlap]),
    ] {
        let mut record = overlapping();
        record.workers[0].stops.push(paused);
        breaks(&record, promises);
        assert_eq!(judge(&record).documented.len(), usize::from(paused.0 < 0.5));
    }
}

#[test]
fn a_loss_excuses_the_overlaps_of_earlier_holds_for_a_lease() {
    for effect in [Effect::Loses, Effect::FailsOver, Effect::Frees] {
        let mut record = overlapping();
        record.faults.push(fault(effect, 0.3, 0.3));
        breaks(&record, &[]);
        assert_eq!(judge(&record).documented.len(), 1);
    }
    // Before both were granted the lock, or too long ago.
    let mut record = overlapping();
    record.faults.push(fault(Effect::Loses, 0.05, 0.05));
    breaks(&record, &[Promise::NoOverlap]);
    let mut record = record_of_a_late_overlap();
    record.faults.push(fault(Effect::Loses, 0.3, 0.3));
    breaks(&record, &[Promise::NoOverlap]);
    // What keeps others out excuses nothing.
    for effect in [Effect::Revokes, Effect::Breaks, Effect::Delays] {
        let mut record = overlapping();
        record.faults.push(fault(effect, 0.3, 0.6));
        breaks(&record, &[Promise::NoOverlap]);
    }
}

#[test]
fn a_clock_set_forward_excuses_an_overlap_only_for_as_long_as_the_step() {
    for (hurried, promises) in [(0.2, &[][..]), (0.05, &[Promise::NoOverlap])] {
        let mut record = overlapping();
        record.faults.push(fault(Effect::Hurries, 0.3, 0.3));
        record.hurried = hurried;
        breaks(&record, promises);
    }
    let mut record = overlapping();
    record.faults.push(fault(Effect::Prolongs, 0.3, 0.3));
    breaks(&record, &[Promise::NoOverlap]);
}

fn record_of_a_late_overlap() -> Record {
    record(vec![worker(0, Mode::Exclusive, 0.1, 1.5), worker(1, Mode::Exclusive, 1.4, 1.9)])
}

#[test]
fn waiters_that_knew_the_holder_let_no_commands_overlap_after_a_loss() {
    let mut record = overlapping();
    record.faults.push(fault(Effect::Loses, 0.3, 0.3));
    record.workers[1].queued = Some(0.2);
    breaks(&record, &[Promise::NoOverlap]);
    record.workers[1].queued = Some(0.05);
    breaks(&record, &[]);
}

#[test]
fn starvation_excuses_an_overlap_only_for_as_long_as_it_lasts() {
    for (gap, promises) in [(0.06, &[][..]), (0.04, &[Promise::NoOverlap])] {
        let mut record = overlapping();
        record.strain.gaps.push((0.4, 0.4 + gap));
        breaks(&record, promises);
        assert_eq!(judge(&record).starved.len(), usize::from(promises.is_empty()));
        let mut record = overlapping();
        record.workers[0].stuck.push((0.45, 0.45 + gap));
        breaks(&record, if gap > 0.05 { &[] } else { promises });
    }
}

/// Lets both workers write these values to one of the counters.
fn writes(record: &mut Record, counter: &str, values: [u64; 2]) {
    for (number, value) in values.into_iter().enumerate() {
        let run = record.workers[number].run.as_mut().unwrap();
        let text = format!("0 0 {} {counter} {value}\n", run.last);
        let written = runs(&text).remove(&0).unwrap();
        (run.plain, run.fenced) = (written.plain, written.fenced);
    }
}

#[test]
fn a_lost_update_breaks_a_promise() {
    let mut record = in_order();
    writes(&mut record, "plain", [1, 2]);
    record.counters.0 = 2;
    breaks(&record, &[]);
    record.counters.0 = 1;
    breaks(&record, &[Promise::NoLostUpdate]);
    writes(&mut record, "plain", [1, 1]);
    breaks(&record, &[Promise::NoLostUpdate]);

    let mut record = overlapping();
    record.faults.push(fault(Effect::Loses, 0.3, 0.3));
    writes(&mut record, "plain", [1, 1]);
    record.counters.0 = 1;
    breaks(&record, &[]);
    assert_eq!(judge(&record).lost_updates, 1);
    writes(&mut record, "fenced", [1, 1]);
    record.counters.1 = 1;
    breaks(&record, &[Promise::NoLostFencedUpdate]);
}

#[test]
fn a_fencing_token_that_does_not_grow_breaks_a_promise() {
    let mut record = in_order();
    record.workers[1].run.as_mut().unwrap().fence = 1;
    breaks(&record, &[Promise::FencesGrow]);
    let fence = record.workers[0].run.as_ref().unwrap().fence;
    record.workers[1].run.as_mut().unwrap().fence = fence;
    breaks(&record, &[Promise::FencesGrow, Promise::FencesGrow]);
}

#[test]
fn overtaking_a_waiter_breaks_a_promise() {
    let overtaken = || {
        let mut record = record(vec![
            worker(0, Mode::Exclusive, 0.1, 0.5),
            worker(1, Mode::Exclusive, 0.9, 1.0),
            worker(2, Mode::Exclusive, 0.6, 0.8),
        ]);
        (record.workers[1].queued, record.workers[2].started) = (Some(0.2), 0.3);
        record
    };
    breaks(&overtaken(), &[Promise::FirstComeFirstServed]);
    // It started before the other one was in the queue.
    let mut record = overtaken();
    record.workers[2].started = 0.1;
    breaks(&record, &[]);
    // The server did not hear the waiter.
    let mut record = overtaken();
    record.faults.push(fault(Effect::Delays, 0.3, 0.4));
    breaks(&record, &[]);
    // Its grant may have been revoked before it was claimed, but not while another one ran.
    for (at, promises) in [(0.55, &[][..]), (0.3, &[Promise::FirstComeFirstServed])] {
        let mut record = overtaken();
        record.faults.push(fault(Effect::Frees, at, at));
        breaks(&record, promises);
    }
    // With --next, the later one goes first, but a waiter with --next stays ahead of all others.
    let mut record = overtaken();
    record.workers[2].work.next = true;
    breaks(&record, &[]);
    record.workers[1].work.next = true;
    breaks(&record, &[Promise::FirstComeFirstServed]);
    record.workers[2].work.next = false;
    for (queued, promises) in [(0.2, &[Promise::FirstComeFirstServed][..]), (0.5, &[])] {
        record.workers[1].queued = Some(queued);
        record.workers[2].started = 0.1;
        breaks(&record, promises);
    }
    // It gave up while a later one ran.
    let mut record = overtaken();
    record.workers[1].run = None;
    record.workers[1].work.limit = WaitLimit::For(Duration::from_secs(1));
    (record.workers[1].ended, record.workers[1].end) = (1.0, End::Status(75));
    breaks(&record, &[Promise::FirstComeFirstServed]);
    record.workers[1].work.limit = WaitLimit::For(Duration::from_millis(500));
    breaks(&record, &[]);
}

#[test]
fn only_requests_that_a_quorum_admits_together_may_be_granted_in_another_order() {
    let overtaken = |mode, first| {
        let mut record = record(vec![
            worker(0, Mode::Exclusive, 0.1, 0.5),
            worker(1, mode, first, 2.0),
            worker(2, mode, 0.6, 0.8),
        ]);
        (record.workers[1].queued, record.workers[2].started) = (Some(0.2), 0.3);
        record.plan.kind = Kind::Quorum(3);
        // On a quorum, this leaves the order as it is.
        record.faults.push(fault(Effect::FailsOne(0), 0.3, 0.4));
        record
    };
    breaks(&overtaken(Mode::Shared, 0.7), &[]);
    breaks(&overtaken(Mode::Shared, 1.0), &[Promise::FirstComeFirstServed]);
    breaks(&overtaken(Mode::Exclusive, 0.9), &[Promise::FirstComeFirstServed]);
    // It could not reach a majority.
    for (wires, promises) in [(0b110, &[][..]), (0b001, &[Promise::FirstComeFirstServed])] {
        let mut record = overtaken(Mode::Exclusive, 0.9);
        record.faults.push(fault(Effect::Parts([0, wires, 0, 0, 0, 0]), 0.3, 0.4));
        breaks(&record, promises);
    }
}

#[test]
fn an_idle_lock_breaks_a_promise() {
    let mut record =
        record(vec![worker(0, Mode::Exclusive, 0.1, 0.5), worker(1, Mode::Exclusive, 6.6, 6.9)]);
    breaks(&record, &[Promise::NoIdleLock]);
    // A fault ended in between.
    record.faults.push(fault(Effect::Delays, 3.0, 4.0));
    breaks(&record, &[]);
}

#[test]
fn a_lock_that_stays_held_breaks_a_promise() {
    let mut record = in_order();
    record.rest = Rest::Held("held".into());
    breaks(&record, &[Promise::NoLockWithoutHolder]);
}

#[test]
fn an_undocumented_exit_status_breaks_a_promise() {
    for end in [1, 64, 69, 70, 75, 76, 77, 78, 79].map(End::Status).into_iter().chain([
        End::Signal(9),
        End::Signal(11),
        End::Never,
    ]) {
        let mut record = in_order();
        record.workers[0].end = end;
        breaks(&record, &[Promise::DocumentedStatus]);
    }
    // Its grant was freed before the reply arrived.
    let mut record = ended_with(79, false);
    breaks(&record, &[Promise::DocumentedStatus]);
    record.faults.push(fault(Effect::Frees, 0.2, 0.3));
    breaks(&record, &[]);
    // A command that was cut short did not succeed.
    let mut record = in_order();
    record.workers[0].run.as_mut().unwrap().done = false;
    breaks(&record, &[Promise::DocumentedStatus]);
    // A fault explains a loss, but not a bug.
    let mut record = in_order();
    record.faults.push(fault(Effect::Revokes, 0.2, 0.3));
    record.workers[0].end = End::Status(76);
    breaks(&record, &[]);
    record.workers[0].end = End::Status(70);
    breaks(&record, &[Promise::DocumentedStatus]);
    let mut record = in_order();
    record.faults.push(Happened { exit: Some(70), ..fault(Effect::Revokes, 0.2, 0.3) });
    breaks(&record, &[Promise::DocumentedStatus]);
}

/// Ends the first worker at 0.5 s, with a TTL of 1 s.
fn ended_with(status: i32, ran: bool) -> Record {
    let mut record = in_order();
    record.workers[0].end = End::Status(status);
    if !ran {
        record.workers[0].run = None;
    }
    record
}

#[test]
fn a_loss_or_a_refusal_needs_a_cause() {
    let causes = |record: &Record| judge(record).causes;
    for (effect, lost, refused) in [
        (Effect::Delays, true, true),
        (Effect::Loses, true, true),
        (Effect::Stops(0), true, true),
        (Effect::Revokes, true, false),
        (Effect::Hurries, true, false),
        (Effect::Prolongs, false, false),
        (Effect::Breaks, false, true),
        (Effect::Stops(1), false, false),
        (Effect::Kills(1), false, false),
        (Effect::FailsOne(0), false, false),
    ] {
        for (status, is_cause) in [(76, lost), (69, refused)] {
            let mut record = ended_with(status, status == 76);
            record.plan.kind = Kind::Quorum(3);
            record.faults.push(fault(effect, 0.2, 0.3));
            breaks(&record, if is_cause { &[] } else { &[Promise::DocumentedStatus] });
            assert_eq!(!causes(&record).is_empty(), is_cause, "{effect:?}");
            // Too early, or for others only.
            for unrelated in [
                fault(effect, -2.0, -1.9),
                Happened { concerned: vec![1], ..fault(effect, 0.2, 0.3) },
            ] {
                let has_others = matches!(effect, Effect::Stops(_) | Effect::Kills(_));
                let is_late = effect == Effect::Breaks && unrelated.from < 0.0;
                if !has_others && !is_late {
                    record.faults = vec![unrelated];
                    breaks(&record, &[Promise::DocumentedStatus]);
                }
            }
        }
    }
    // Most servers failed, one after another.
    let mut record = ended_with(76, true);
    record.plan.kind = Kind::Quorum(3);
    record.faults =
        vec![fault(Effect::FailsOne(0), -1.0, -1.0), fault(Effect::FailsOne(0), 0.2, 0.2)];
    breaks(&record, &[Promise::DocumentedStatus]);
    record.faults.push(fault(Effect::FailsOne(2), 0.3, 0.3));
    breaks(&record, &[]);
    // Each worker counts what it is cut off from.
    for (wires, promises) in [(0b101, &[][..]), (0b010, &[]), (0b001, &[Promise::DocumentedStatus])]
    {
        let mut record = ended_with(69, false);
        record.plan.kind = Kind::Quorum(3);
        let parts = Effect::Parts([wires, 0b111, 0, 0, 0, 0]);
        record.faults = vec![fault(Effect::FailsOne(0), 0.2, 0.2), fault(parts, 0.2, 0.3)];
        breaks(&record, promises);
    }
    // The machine starved for a tenth of the TTL.
    for (until, promises) in [(0.25, &[Promise::DocumentedStatus][..]), (0.31, &[])] {
        let mut record = ended_with(76, true);
        record.strain.gaps = vec![(0.2, 0.22), (0.21, 0.23)];
        record.strain.stuck.push((0.22, until));
        breaks(&record, promises);
        assert_eq!(causes(&record).len(), usize::from(promises.is_empty()));
    }
}

#[test]
fn orders_of_the_urls_that_show_other_times_break_a_promise() {
    let shown = |ended: &str, ended_at, acquired_at| Shown {
        id: "5f0c21aa".into(),
        ended: Some(ended.into()),
        ended_at,
        acquired_at,
    };
    let first = shown("released", 9.0, 5.0);
    for (other, promises) in [
        (first.clone(), &[][..]),
        (shown("expired", 9.0, 5.0), &[Promise::OneView]),
        (shown("released", 10.0, 5.0), &[Promise::OneView]),
        (shown("released", 9.0, 6.0), &[Promise::OneView]),
    ] {
        let mut record = in_order();
        record.shown = vec![vec![first.clone()], vec![other]];
        breaks(&record, promises);
        assert_eq!(judge(&record).views_compared, 1);
    }
}
