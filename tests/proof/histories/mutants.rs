//! Faults that are put into the scripts: the histories must find each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use super::{limits, play, random, stories};
use crate::scripts::shim::Shim;

/// How many histories look for a fault.
const HISTORIES: u64 = 3_000;

/// A text in a line, and what replaces it.
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
    ("0", &["1"]),
    ("1", &["0"]),
    ("math.max", &["math.min"]),
    ("math.min", &["math.max"]),
];

/// Parts of changed lines that change nothing that matters, and why.
const EQUIVALENT: &[(&[&str], &str)] = &[
    (
        &[
            ", 0, MAX_DETAIL)",
            ", 0, MAX_ENTRY)",
            ", 0, 8)",
            ", 0, 6)",
            "(owner, 0, 1)",
            "(QUEUE, 0, -6)",
            "(bits, 0, at - 1)",
            "' ', 0, true)",
        ],
        "to Lua, a text begins at 0 as well as at 1",
    ),
    (
        &[
            ".alive) or 1)",
            ".ttl) or 1",
            ".keep_until) or 1",
            ".fence) or 1)",
            "HOLDS, token) or 1)",
            "lock.fence or 1)",
            "'^%d+') or 1)",
            "TICKET or 1,",
            "lock.ticket) or 1)",
            "'acquire' and 1 or",
            "extend(TTL, 1,",
            "lock.revoked_up_to = '', 1",
        ],
        "0 and 1 are both before any time, fence or ticket",
    ),
    (
        &["TICKET > 1", "WANTED > 1", "SUPERSEDE > 1", "arrival > 1", "agreed > 1", "last > 1"],
        "fences and tickets count microseconds",
    ),
    (&["tonumber(score) <= 0", "tonumber(score) < 1"], "no ticket is 0"),
    (&["HEARTBEAT > 1"], "the shortest is longer"),
];

#[derive(Clone)]
struct Mutant {
    place: String,
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
        let name = path.strip_prefix(root).unwrap().display().to_string();
        for (line, text) in (1..).zip(fs::read_to_string(&path).unwrap().lines()) {
            // As build/scripts.rs writes it.
            let old = text.trim().replace("redis.call(", "call(");
            if old.starts_with("--") {
                continue;
            }
            for (from, replacements) in FAULTS {
                for (at, _) in old.match_indices(from).filter(|(at, _)| is_whole(&old, *at, from)) {
                    for to in *replacements {
                        let new = format!("{}{to}{}", &old[..at], &old[at + from.len()..]);
                        mutants.push(Mutant {
                            place: format!("{name}:{line}"),
                            old: old.clone(),
                            new,
                        });
                    }
                }
            }
        }
    }
    mutants
}

impl Mutant {
    fn is_equivalent(&self) -> bool {
        let parts = EQUIVALENT.iter().flat_map(|(parts, _)| *parts);
        parts.into_iter().any(|part| self.new.contains(part) && !self.old.contains(part))
    }
}

/// Whether the text is a whole word or number there, and not part of another one.
fn is_whole(line: &str, at: usize, text: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '%');
    let (before, after) = (line[..at].chars().next_back(), line[at + text.len()..].chars().next());
    let starts_word = text.starts_with(|c: char| c.is_alphanumeric());
    let ends_word = text.ends_with(|c: char| c.is_alphanumeric());
    !(starts_word && is_part(before) || ends_word && is_part(after))
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
    // Each has a thread of its own, and with it its scripts.
    thread::spawn(move || catch_unwind(AssertUnwindSafe(look)).is_err()).join().unwrap()
}

/// `RLOCK_MUTANTS` names a part of a place or a line, or nothing for all.
#[test]
fn the_histories_find_faults_in_the_scripts() {
    let Ok(wanted) = env::var("RLOCK_MUTANTS") else { return };
    std::panic::set_hook(Box::new(|_| {}));
    let is_wanted =
        |mutant: &Mutant| mutant.place.contains(&wanted) || mutant.new.contains(&wanted);
    let wanted = mutants().into_iter().filter(is_wanted);
    let mutants: Vec<_> = wanted.filter(|mutant| !mutant.is_equivalent()).collect();
    let (next, found) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if is_found(mutant) {
                        found.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let Mutant { place, old, new } = mutant;
                        println!("not found: {place}\n    {old}\n    {new}");
                    }
                }
            });
        }
    });
    println!("found {} of {}", found.into_inner(), mutants.len());
}
