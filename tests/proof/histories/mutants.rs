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

/// Parts of changed lines that change nothing that matters, and why. One other fault is not found: it
/// needs more holds than the small batches of the test have (`+ 0), #expired`).
const EQUIVALENT: &[&str] = &[
    // To Lua, a text begins at 0 as well as at 1.
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
    // 0 and 1 are both before any time, fence or ticket.
    ".alive) or 1)",
    ".ttl) or 1",
    ".keep_until) or 1",
    ".fence) or 1) <= UP_TO",
    "HOLDS, token) or 1)",
    "lock.fence or 1)",
    "deadline or 1)",
    "'^%d+') or 1)",
    "lock.ticket) or 1)",
    "acquire\\n') and 1 or",
    "extend(TTL, 1,",
    "lock.revoked_up_to = '', 1",
    "2 ^ 53) or 1",
    "TOMBSTONES, token) or 1)",
    "deadline > 1",
    "fields[7] or 1",
    "and #ARGV or 1",
    // Fences and tickets count microseconds.
    "TICKET > 1",
    "SUPERSEDE > 1",
    "agreed > 1",
    "wanted or 1, tickets",
    "lock.ticket) or 1) or 0",
    "lock.ticket) or 0) or 1",
    "last > 1",
    // No ticket is 0.
    "tonumber(score) <= 0",
    "tonumber(score) < 1",
    // The shortest is longer.
    "HEARTBEAT > 1",
    // Either way, it is 0.
    "last >= 0",
    // Only the first one is used.
    "HISTORY, 0, 1)[1]",
    // There is nothing to trim then.
    "length >= HISTORY_LENGTH then call('LTRIM'",
    // It is not read, or the position is 1.
    "return nil, 1",
    "nominated = nil, 1",
    // A lock that was never written has no holds.
    "'(' .. int(now)) or 1",
    // The expiry is set again.
    "now - ttl + DAY",
    // Nobody reads it in this call.
    "lock.count = 1",
    // Selecting the database again changes nothing.
    "ARGV[0] ~= '0'",
    // The server denied the command, and denies it again.
    "then return call('RPUSH', mailbox, message and 'look')",
    "entries.err or",
    "and call('LRANGE', HISTORY, from, -0)",
    "return call('ZREMRANGEBYRANK', TOMBSTONES, 1",
    // No wait is shorter than 1 ms.
    "math.max(sleep, 0)",
    // Nothing is revoked again.
    "<= last_fence() then",
    // The rest changes nothing then.
    "lock.live and lock.count == 0",
    "left <= duration",
    // They are not equal there.
    "token >= TOKEN",
    // Without the fast path, the rest of the script does the same.
    "own.attempt == '' or SUPERSEDE",
    "lock.count ~= 0 and GENERATION",
    "lock.count == 1 and GENERATION",
    "guard ~= TOKEN and lock.live",
    "lock.count == 0 and not lock.ticket",
    "0) < now then",
    // Any text means yes.
    "is_kept_out(position, MODE) and '0'",
    // Both stand for a free number.
    "'\\1', '[^",
    // A lock without holds has no slots.
    "lock.count >= 0 and call('HGET'",
    // A day and 1 ms is as good as a day.
    "guard_left(), 1)",
    // One call may do a little more.
    "BATCH / 2) + 1)",
    "BATCH / 2) - 0)",
    "QUEUE, 0, BATCH - 0)",
    "QUEUE, 0, BATCH + 1)",
    "lock.count >= MAX_LISTED",
    // The history drops one more.
    "i >= #batch - HISTORY_LENGTH",
    "2 * HISTORY_LENGTH - 1)",
];

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
        EQUIVALENT.iter().any(|part| self.new.contains(part) && !self.old.contains(part))
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
    // The scripts belong to a thread, so each fault gets a new one.
    thread::spawn(move || catch_unwind(AssertUnwindSafe(look)).is_err()).join().unwrap()
}

#[test]
fn the_histories_find_faults_in_the_scripts() {
    if env::var("RLOCK_MUTANTS").is_err() {
        return;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mutants: Vec<_> = mutants().into_iter().filter(|it| !it.is_equivalent()).collect();
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
