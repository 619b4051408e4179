//! Faults that are put into the scripts: the histories must find each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use super::{limits, play, random, stories};
use crate::scripts::shim::Shim;

/// How many histories look for a fault.
const HISTORIES: u64 = 3_000;

/// A text in a line, and what replaces it. A default of 0 stands for a time, fence or ticket before
/// all others, as 1 would: so it becomes one after them.
const FAULTS: &[(&str, &[&str])] = &[
    (" == ", &[" ~= "]),
    (" ~= ", &[" == "]),
    (" < ", &[" <= ", " >= "]),
    (" <= ", &[" < ", " > "]),
    (" > ", &[" >= ", " < "]),
    (" >= ", &[" > ", " <= "]),
    (" + ", &[" - "]),
    (" - ", &[" + "]),
    (" and ", &[" or "]),
    (" or ", &[" and "]),
    ("not ", &[""]),
    (DEFAULT, &[" or 9e15"]),
    ("0", &["1"]),
    ("1", &["2"]),
    ("math.max", &["math.min"]),
    ("math.min", &["math.max"]),
];

const DEFAULT: &str = " or 0";

/// The faults that are not found, and why.
const SURVIVORS: &[&str] = &[
    // The value is never missing there.
    "admission.lua admit: or 0 → or 9e15",
    "history.lua history: or 0 → or 9e15",
    "member.lua is_kept_out: or 0 → or 9e15",
    "queue.lua wake_first: or 0 → or 9e15",
    "reconcile.lua reconcile: or 0 → or 9e15",
    "requests/release.lua: or 0 → or 9e15",
    "requests/remove.lua: or 0 → or 9e15",
    "requests/revoke.lua: or 0 → or 9e15",
    "view.lua shown_waiter: or 0 → or 9e15",
    // No fence and no ticket is 0 or 1: they count microseconds.
    "fence.lua last_fence: 0 → 1",
    "queue.lua enqueue: 0 → 1",
    "queue.lua enqueue: 0 → 1",
    "queue.lua is_next: 0 → 1",
    "queue.lua is_next: < → <=",
    "reconcile.lua become_idle: 0 → 1",
    "requests/acquire.lua: 0 → 1",
    "requests/propose.lua: 0 → 1",
    // Both are before any time, or neither is a time that has passed; no heartbeat is so short.
    "asking.lua hold_again: 0 → 1",
    "member.lua proposed: 0 → 1",
    "requests/renew.lua: 0 → 1",
    "tombstones.lua why_not_held: 0 → 1",
    "tombstones.lua why_not_held: or 0 → or 9e15",
    // Either way, it is 0, or the bits that count are.
    "fence.lua last_fence: > → >=",
    "slots.lua is_taken: or 0 → or 9e15",
    "slots.lua take_slot: 0 → 1",
    // Any text means yes, and any negative number that the time is unknown.
    "member.lua proposed: 1 → 2",
    "tombstones.lua why_not_held: 1 → 2",
    "tombstones.lua why_not_held: 1 → 2",
    "tombstones.lua why_not_held: 1 → 2",
    "view.lua view: 1 → 2",
    // Nobody reads it, or only the first one of it.
    "admission.lua admit: 0 → 1",
    "history.lua least_useful: 0 → 1",
    "holds.lua drop_remains: 0 → 1",
    "reconcile.lua reconcile: 0 → 1",
    // They are never equal there.
    "asking.lua supersede: > → >=",
    // What it does then changes nothing, or is done again.
    "history.lua record: > → >=",
    "holds.lua extend: + → -",
    "lock.lua: 1 → 2",
    "reconcile.lua reconcile: < → <=",
    "requests/revoke.lua: > → >=",
    "slots.lua taken_slots: > → >=",
    "tombstones.lua add_tombstone: < → <=",
    "transaction.lua state_expiry: 0 → 1",
    // The server denied the command, and denies it again.
    "history.lua last_entries: 1 → 2",
    "history.lua last_entries: and → or",
    "queue.lua wake: or → and",
    "tombstones.lua add_tombstone: 0 → 1",
    // Without the fast path, the rest of the script does the same.
    "closing.lua close: 1 → 2",
    "requests/acquire.lua: 0 → 1",
    "requests/acquire.lua: == → ~=",
    "requests/acquire.lua: ~= → ==",
    "requests/release.lua: <= → <",
    // One call does a little more or less, and the next one the rest.
    "holds.lua settle_mode: > → >=",
    "queue.lua wake_first: - → +",
    "queue.lua wake_first: 1 → 2",
    "requests/revoke.lua: - → +",
    "requests/revoke.lua: 1 → 2",
    // The histories lack it: so many slots, tombstones or holds that expire at once, details of no
    // hold and no waiter, keys of another type, or another tool's tokens.
    "history.lua expired_entries: + → -",
    "history.lua expired_entries: 1 → 2",
    "requests/remove.lua: and → or",
    "slots.lua set_slot: 1 → 2",
    "slots.lua set_slot: 1 → 2",
    "tombstones.lua add_tombstone: 0 → 1",
    "tombstones.lua add_tombstone: > → >=",
    "transaction.lua is_wrong_type: 1 → 2",
    "view.lua is_of_rlock: 0 → 1",
    "view.lua is_of_rlock: == → ~=",
    "view.lua is_of_rlock: == → ~=",
    "view.lua view: or → and",
];

struct Mutant {
    /// The file, the function if the line is in one, and the fault.
    name: String,
    old: String,
    new: String,
}

/// Every fault in every line of the scripts.
fn mutants() -> Vec<Mutant> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");
    let mut files: Vec<_> = ["", "/requests"]
        .iter()
        .flat_map(|directory| fs::read_dir(format!("{root}{directory}")).unwrap())
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let mut mutants = Vec::new();
    for path in files {
        let file = path.strip_prefix(root).unwrap().display();
        let mut place = String::new();
        for text in fs::read_to_string(&path).unwrap().lines() {
            match text.strip_prefix("local function ") {
                Some(function) => place = format!("{file} {}", function.split('(').next().unwrap()),
                None if text.starts_with(char::is_alphabetic) => place = file.to_string(),
                None => {}
            }
            // As build/scripts.rs writes it.
            let old = text.trim().replace("redis.call(", "call(");
            if old.starts_with("--") {
                continue;
            }
            for (from, replacements) in FAULTS {
                let places = old.match_indices(from).map(|(at, _)| at);
                for at in places.filter(|at| is_whole(&old, *at, from)) {
                    mutants.extend(replacements.iter().map(|to| Mutant {
                        name: format!("{place}: {} → {}", from.trim(), to.trim()),
                        old: old.clone(),
                        new: format!("{}{to}{}", &old[..at], &old[at + from.len()..]),
                    }));
                }
            }
        }
    }
    mutants
}

/// Whether the text is a whole word or number there, and not part of another one or of a default.
fn is_whole(line: &str, at: usize, text: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '%');
    let (before, after) = (line[..at].chars().next_back(), line[at + text.len()..].chars().next());
    let starts_word = text.starts_with(|c: char| c.is_alphanumeric());
    let ends_word = text.ends_with(|c: char| c.is_alphanumeric());
    let is_in_default = text == "0" && line[..=at].ends_with(DEFAULT);
    !(is_in_default || starts_word && is_part(before) || ends_word && is_part(after))
}

/// Whether a history finds the fault.
fn is_found(mutant: &Mutant) -> bool {
    let (old, new) = (mutant.old.clone(), mutant.new.clone());
    let look = move || {
        Shim::with(|sandbox| {
            sandbox.mutation = Some((old, new));
            sandbox.limit_steps();
        });
        stories::all();
        limits::all();
        (0..HISTORIES).for_each(|seed| play(&random::history(seed)));
    };
    // The scripts belong to a thread, so each fault gets a new one.
    thread::spawn(move || catch_unwind(AssertUnwindSafe(look)).is_err()).join().unwrap()
}

#[test]
fn the_histories_find_all_other_faults_in_the_scripts() {
    let Ok(place) = env::var("RLOCK_MUTANTS") else { return };
    std::panic::set_hook(Box::new(|_| {}));
    let mutants: Vec<_> = mutants().into_iter().filter(|it| it.name.contains(&place)).collect();
    let (next, missed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let expected = SURVIVORS.iter().copied().filter(|name| name.contains(&place));
    let expected = Mutex::new(expected.collect::<Vec<_>>());
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if is_found(mutant) {
                        continue;
                    }
                    let mut expected = expected.lock().unwrap();
                    if let Some(at) = expected.iter().position(|name| *name == mutant.name) {
                        expected.swap_remove(at);
                    } else {
                        let Mutant { name, old, new } = mutant;
                        println!("not found: {name}\n    {old}\n    {new}");
                        missed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    drop(std::panic::take_hook());
    assert_eq!(missed.into_inner(), 0, "of {} faults were not found", mutants.len());
    assert!(expected.lock().unwrap().is_empty(), "found after all: {expected:?}");
}
