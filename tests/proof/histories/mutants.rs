//! Faults that are put into the scripts: the histories must find each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use super::{cases, limits, play, random, stories};
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

/// Parts of changed lines that change nothing that matters, and why. Two other faults are not found:
/// one needs more holds than the small batches of the test have (`+ 0), #expired`), and one a waiter
/// that releases while memory is full (`cools or ended`).
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
            "(mark, 0, ",
            "'WRONGTYPE', 0, true)",
        ],
        "to Lua, a text begins at 0 as well as at 1",
    ),
    (
        &[
            ".alive) or 1)",
            ".ttl) or 1",
            ".keep_until) or 1",
            ".fence) or 1) <= UP_TO",
            "HOLDS, token) or 1)",
            "lock.fence or 1)",
            "'^%d+') or 1)",
            "TICKET or 1,",
            "lock.ticket) or 1)",
            "'acquire' and 1 or",
            "extend(TTL, 1,",
            "lock.revoked_up_to = '', 1",
            "2 ^ 53) or 1",
            "TOMBSTONES, token) or 1)",
            "deadline > 1",
            "fields[7] or 1",
            "and #ARGV or 1",
        ],
        "0 and 1 are both before any time, fence or ticket",
    ),
    (
        &[
            "TICKET > 1",
            "WANTED > 1",
            "SUPERSEDE > 1",
            "arrival > 1",
            "agreed > 1 then",
            "last > 1",
        ],
        "fences and tickets count microseconds",
    ),
    (&["tonumber(score) <= 0", "tonumber(score) < 1"], "no ticket is 0"),
    (&["HEARTBEAT > 1"], "the shortest is longer"),
    (&["last >= 0"], "either way, it is 0"),
    (&["HISTORY, 0, 1)[1]"], "only the first one is used"),
    (&["length >= HISTORY_LENGTH then call('LTRIM'"], "there is nothing to trim then"),
    (&["return nil, 1", "nominated = nil, 1"], "it is not read, or the position is 1"),
    (&["'(' .. int(now)) or 1"], "a lock that was never written has no holds"),
    (&["now - ttl + DAY"], "the expiry is set again"),
    (&["lock.count = 1"], "nobody reads it in this call"),
    (&["ARGV[0] ~= '0'"], "selecting the database again changes nothing"),
    (
        &[
            "then return call('RPUSH', mailbox, message and 'look')",
            "entries.err or",
            "and call('LRANGE', HISTORY, from, -0)",
            "return call('ZREMRANGEBYRANK', TOMBSTONES, 1",
        ],
        "the server denied the command, and denies it again",
    ),
    (&["math.max(sleep, 0)"], "no wait is shorter than 1 ms"),
    (&["<= last_fence() then"], "nothing is revoked again"),
    (&["lock.live and lock.count == 0", "left <= duration"], "the rest changes nothing then"),
    (&["token >= TOKEN"], "they are not equal there"),
    (
        &[
            "own.attempt == '' or TICKET",
            "lock.count ~= 0 and WANTED == 0",
            "lock.count == 1 and WANTED == 0",
            "WANTED == 1 and GENERATION",
            "guard ~= TOKEN and lock.live",
            "lock.count == 0 and not lock.ticket",
            "0) < now then",
        ],
        "without the fast path, the rest of the script does the same",
    ),
    (&["is_kept_out(position, MODE) and '0'"], "any text means yes"),
    (&["'\\1', '[^"], "both stand for a free number"),
    (&["lock.count >= 0 and call('HGET'"], "a lock without holds has no slots"),
    (&["guard_left(), 1)"], "a day and 1 ms is as good as a day"),
    (
        &[
            "BATCH / 2) + 1)",
            "BATCH / 2) - 0)",
            "QUEUE, 0, BATCH - 0)",
            "QUEUE, 0, BATCH + 1)",
            "lock.count >= MAX_LISTED",
        ],
        "one call may do a little more",
    ),
    (&["i >= #batch - HISTORY_LENGTH", "2 * HISTORY_LENGTH - 1)"], "the history drops one more"),
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
        // Most faults are found at once.
        let (quick, rest) = (0..50, 50..cases().unwrap_or(HISTORIES));
        quick.for_each(|seed| play(&random::history(seed)));
        stories::all();
        limits::all();
        rest.for_each(|seed| play(&random::history(seed)));
    };
    // The scripts belong to a thread, so each fault gets a new one.
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
