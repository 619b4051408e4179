//! Faults that are put into the scripts: the histories must find each.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use super::{limits, play, random, stories};
use crate::scripts::sandbox::Mutation;
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
    "history.lua history: or 0 → or 9e15",
    "history.lua recorded: or 0 → or 9e15",
    "queue.lua is_alive: or 0 → or 9e15",
    "reconcile.lua reconcile: or 0 → or 9e15",
    "requests/release.lua: or 0 → or 9e15",
    "requests/remove.lua: or 0 → or 9e15",
    "requests/revoke.lua: or 0 → or 9e15",
    // No fence and no ticket is 0 or 1: they count microseconds.
    "asking.lua enqueue: 0 → 1",
    "asking.lua enqueue: 0 → 1",
    "queue.lua is_next: 0 → 1",
    "queue.lua is_next: < → <=",
    "reconcile.lua become_idle: 0 → 1",
    "requests/acquire.lua: 0 → 1",
    "requests/acquire.lua: 0 → 1",
    "requests/propose.lua: 0 → 1",
    // Both are before any time, or neither is a time that has passed; no heartbeat is so short.
    "asking.lua hold_again: 0 → 1",
    "member.lua proposed: 0 → 1",
    "requests/renew.lua: 0 → 1",
    "requests/renew.lua: without and 0",
    "tombstones.lua why_not_held: 0 → 1",
    "tombstones.lua why_not_held: or 0 → or 9e15",
    // Either way, it is 0, or the bits that count are.
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
    "history.lua recorded: 1 → 2",
    "holds.lua drop_remains: 0 → 1",
    "reconcile.lua reconcile: 0 → 1",
    // A client reads both alike, or asks for all.
    "history.lua last_entries: without and -at_most",
    "history.lua last_entries: without at_most and -at_most or",
    "requests/inspect.lua: without ARGV[3] ~= '' and",
    // Shared waiters are admitted beside a shared hold anyway, and only a chosen owner has several holds.
    "owners.lua may_enter: without or string.sub(details.owner, 1, 1) ~= '='",
    "owners.lua may_enter: without or outer == 'shared' and details.mode == 'shared'",
    // No hold is one of these tokens: they are ids of others.
    "tombstones.lua has_tombstone: without token == TOKEN and",
    // Lua refuses it.
    "history.lua history: without '(' .. int(now)) or",
    // They are never equal there.
    "asking.lua supersede: > → >=",
    // What it does then changes nothing, or is done again.
    "admission.lua admit: without their_mode or",
    "history.lua record: > → >=",
    "holds.lua extend: + → -",
    "lock.lua: 1 → 2",
    "reconcile.lua become_idle: without lock.ticket, lock.written, lock.notified = nil, nil, nil",
    "reconcile.lua reconcile: < → <=",
    "reconcile.lua reconcile: without lock.count = 0",
    "reconcile.lua reconcile: without write_nothing()",
    "requests/revoke.lua: > → >=",
    "slots.lua taken_slots: > → >=",
    "tombstones.lua add_tombstone: < → <=",
    "transaction.lua state_expiry: 0 → 1",
    // The server denied the command, and denies it again.
    "history.lua record: without return call('RPUSH', HISTORY, unpack(entries))",
    "history.lua last_entries: 1 → 2",
    "history.lua last_entries: and → or",
    "history.lua last_entries: without and call('LRANGE', HISTORY, from, -1)",
    "history.lua last_entries: without entries.err and",
    "history.lua last_entries: without entries.err and call('LRANGE', HISTORY, from, -1) or",
    "queue.lua wake: or → and",
    "queue.lua wake: without message or",
    "queue.lua wake: without or 'look'",
    "queue.lua wake: without return call('RPUSH', mailbox, message or 'look')",
    "tombstones.lua add_tombstone: 0 → 1",
    // Without the fast path, the rest of the script does the same.
    "holds.lua set_deadline: without return set_guard(token, deadline, field, text, ...)",
    "closing.lua close: 1 → 2",
    "reconcile.lua reconcile: without return",
    "requests/release.lua: <= → <",
    // This spares a command: a lock without tickets has no queue, for one.
    "admission.lua admit: without return nil, 0",
    "admission.lua admit: without tokens ~= lock.nominated and",
    "owners.lua owner_mode: without lock.live and",
    "asking.lua enqueue: without lock.ticket and",
    "queue.lua wake_first: without lock.ticket and",
    "reconcile.lua reconcile: without and lock.revoked_up_to < last_fence()",
    "history.lua recorded: without string.find(entry, id, 1, true) and",
    "transaction.lua is_queue_empty: without not lock.ticket or",
    "requests/leave.lua: without lock.ticket and",
    "requests/release.lua: without lock.ticket and",
    "slots.lua taken_slots: without lock.count > 0 and",
    "tombstones.lua add_tombstone: without removed > 0 and",
    // Only the first view counts, and no larger number is shown.
    "asking.lua ahead: without , 2 ^ 53",
    "history.lua record_skip: without , 2 ^ 52",
    "view.lua view: without holders_from or",
    "requests/revoke.lua: without ARGV[5] == '' and",
    // admit() decides nothing either while cleanup remains.
    "asking.lua early_reply: without return { 'again' }",
    "requests/commit.lua: without return { 'again' }",
    "requests/remove.lua: without return { 'again', ARGV[6] }",
    // What remains of keys that were lost, and is not in the model.
    "admission.lua admit: without details.renewed = ''",
    "asking.lua early_reply: without and unexpired_hold(TOKEN)",
    "history.lua history_entry: without or details.fence == ''",
    "history.lua history: without lock.written and",
    "holds.lua drop_remains: without lock.count = 0",
    "revocation.lua revocation: without or 'revoked'",
    "holds.lua set_guard: without , now",
    "holds.lua unexpired_hold: without return nil",
    "requests/remove.lua: without and (unexpired_hold(token) or call('ZSCORE', QUEUE, token))",
    "requests/remove.lua: without not deadline or",
    "tombstones.lua has_tombstone: without and unexpired_hold(token)",
    // One call does a little more or less, and the next one the rest.
    "holds.lua settle_mode: > → >=",
    "queue.lua wake_first: - → +",
    "queue.lua wake_first: 1 → 2",
    "requests/revoke.lua: - → +",
    "requests/revoke.lua: 1 → 2",
    // The histories lack it: so many slots, tombstones or holds that expire at once, details of no
    // hold and no waiter, a lock of another type, another tool's tokens, entries, tombstones or fields, or a
    // clock that is set back.
    "history.lua expired_entries: + → -",
    "history.lua expired_entries: 1 → 2",
    "history.lua expired_entries: without , #expired - 2 * HISTORY_LENGTH + 1",
    "history.lua history: without number - HISTORY_LENGTH,",
    "holds.lua settle_mode: without or lock.count > MAX_LISTED",
    "queue.lua millis_to_sleep: without , 1",
    "requests/release.lua: without lock.live and",
    "requests/revoke.lua: without and i > #batch - HISTORY_LENGTH",
    "slots.lua set_slot: 1 → 2",
    "slots.lua set_slot: 1 → 2",
    "tombstones.lua add_tombstone: 0 → 1",
    "tombstones.lua add_tombstone: > → >=",
    "tombstones.lua how_ended: without how and",
    "tombstones.lua why_not_held: without , 0",
    "tombstones.lua why_not_held: without , 0",
    "transaction.lua: without return guard",
    "view.lua is_of_rlock: 0 → 1",
    "view.lua view: without records[i] = string.sub(record, 1, MAX_RECORD)",
    "view.lua is_of_rlock: == → ~=",
    "view.lua is_of_rlock: == → ~=",
    "view.lua is_of_rlock: without #text == 36 and",
    "view.lua is_of_rlock: without and string.gsub(text, '[0-9a-f]', 'x') == 'xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx'",
    "view.lua view: without and '1'",
    "view.lua view: without lock.foreign and is_of_rlock(guard) and '1' or",
    "view.lua view: without .. '\\nis_of_rlock ' .. (lock.foreign and is_of_rlock(guard) and '1' or '')",
];

struct Mutant {
    /// The file, the function if the line is in one, and the fault.
    name: String,
    mutation: Mutation,
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
    let mut mutants: Vec<Mutant> = Vec::new();
    for path in files {
        let file = path.strip_prefix(root).unwrap().display().to_string();
        // As build/scripts.rs writes it.
        let text = fs::read_to_string(&path).unwrap().replace("redis.call(", "call(");
        let is_code = |line: &&str| !line.is_empty() && !line.trim_start().starts_with("--");
        let lines: Vec<&str> = text.lines().filter(is_code).collect();
        // Each request is a script, and no other one has its longest line.
        let longest = lines.iter().map(|line| line.trim()).max_by_key(|line| line.len());
        let within = longest.filter(|_| file.starts_with("requests")).unwrap_or_default();
        let mut place = String::new();
        for (at, line) in lines.iter().enumerate() {
            let indented = |at: usize| lines.get(at).map_or(0, |it| it.len() - it.trim().len());
            match line.strip_prefix("local function ") {
                Some(function) => place = format!("{file} {}", function.split('(').next().unwrap()),
                None if line.starts_with(char::is_alphabetic) => place.clone_from(&file),
                None => {}
            }
            // Functions may come between two lines that are not indented.
            let after = if indented(at) > 0 { lines[at - 1].trim() } else { "" };
            let is_whole = indented(at + 1) <= indented(at);
            let all = operators(line.trim()).chain(without(line.trim(), is_whole));
            for (what, new) in all {
                let name = format!("{place}: {what}");
                let old = line.trim().to_owned();
                let (within, after) = (within.to_owned(), after.to_owned());
                let mutation = Mutation { within, after, old, new };
                if mutants.iter().all(|known| known.mutation != mutation) {
                    mutants.push(Mutant { name, mutation });
                }
            }
        }
    }
    mutants
}

/// The operators and numbers of a line, replaced.
fn operators(line: &str) -> impl Iterator<Item = (String, String)> {
    FAULTS.iter().flat_map(move |(from, replacements)| {
        let places = line.match_indices(from).map(|(at, _)| at);
        places.filter(|at| is_whole(line, *at, from)).flat_map(move |at| {
            replacements.iter().map(move |to| {
                let new = format!("{}{to}{}", &line[..at], &line[at + from.len()..]);
                (format!("{} → {}", from.trim(), to.trim()), new)
            })
        })
    })
}

/// A line without a term of a condition, an argument of a minimum or a maximum, or a statement. Does
/// it have `whole` statements only?
fn without(line: &str, whole: bool) -> impl Iterator<Item = (String, String)> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for operator in ["and ", "or "] {
        let stronger = [" or ", " and "];
        let stops = &stronger[..if operator == "and " { 2 } else { 1 }];
        for (at, _) in line.match_indices(operator) {
            // It has a space before it, unless it begins the line.
            let Some(before) = line[..at].strip_suffix(' ').or((at == 0).then_some("")) else {
                continue;
            };
            let end = at + operator.len();
            parts.push(before.len()..end + forward(&line[end..], &[&RIGHT, stops].concat()));
            // The operator that begins the line belongs to the line before.
            let lead = ["and ", "or "].iter().find(|it| before.starts_with(**it));
            let lead = lead.map_or(0, |it| it.len());
            parts.push(backward(before, &[&LEFT, stops].concat()).max(lead)..end);
        }
    }
    for (at, call) in line.match_indices("math.m") {
        let from = at + call.len() + "ax(".len();
        let mut start = from;
        loop {
            let end = start + forward(&line[start..], &[", "]);
            let is_last = !line[end..].starts_with(", ");
            match is_last {
                false => parts.push(start..end + 2),
                true => parts.push(start.saturating_sub(2).max(from)..end),
            }
            if is_last {
                break;
            }
            start = end + 2;
        }
    }
    for opener in [" then ", " do ", " else "] {
        for (at, _) in line.match_indices(opener) {
            let start = at + opener.len();
            parts.push(start..start + forward(&line[start..], &[" else ", " end"]));
        }
    }
    // What begins with a parenthesis continues another line.
    let is_statement = !line.starts_with('(') && (line.contains('(') || line.contains(" = "));
    let first = line.split([' ', '(']).next().unwrap_or_default();
    if whole && is_statement && !line.ends_with(',') && !WORDS.contains(&first) {
        parts.push(0..line.len());
    }
    let is_balanced = |part: &str| forward(part, &[]) == part.len() && backward(part, &[]) == 0;
    let parts = parts.into_iter().filter(move |part| {
        let part = line[part.clone()].trim();
        !part.is_empty() && !TRIVIAL.contains(&part) && is_balanced(part)
    });
    parts.map(|part| {
        let what = format!("without {}", line[part.clone()].trim());
        (what, format!("{}{}", &line[..part.start], &line[part.end..]))
    })
}

/// What may come before and after the terms of a condition.
const LEFT: [&str; 5] = [" = ", "return ", "if ", "while ", ", "];
const RIGHT: [&str; 4] = [" then", " do", " end", ","];

/// What is not a term, or is a default, which `FAULTS` replace.
const TRIVIAL: [&str; 6] = ["and", "or", "or 0", "or nil", "or ''", "or {}"];

/// Words that no statement begins with that could be left out.
const WORDS: [&str; 11] =
    ["local", "return", "if", "elseif", "else", "end", "for", "while", "break", "and", "or"];

/// How far a text goes on before one of the stops, or the end of the parentheses around it.
fn forward(text: &str, stops: &[&str]) -> usize {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        let is_stop = |stop: &&str| text[at..].starts_with(*stop) && is_whole(text, at, stop);
        if depth < 0 || depth == 0 && stops.iter().any(is_stop) {
            return at;
        }
    }
    if depth == 0 { text.len() } else { 0 }
}

/// As `forward`, from the end of the text.
fn backward(text: &str, stops: &[&str]) -> usize {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices().rev() {
        let end = at + c.len_utf8();
        if depth == 0 && stops.iter().any(|stop| text[..end].ends_with(stop)) {
            return end;
        }
        depth += i32::from(")]}".contains(c)) - i32::from("([{".contains(c));
        if depth < 0 {
            return end;
        }
    }
    if depth == 0 { 0 } else { text.len() }
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
    let mutation = mutant.mutation.clone();
    let look = move || {
        Shim::with(|sandbox| {
            sandbox.mutation = Some(mutation);
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
    let Ok(words) = env::var("RLOCK_MUTANTS") else { return };
    let is_wanted = |name: &str| words.split(' ').all(|word| name.contains(word));
    std::panic::set_hook(Box::new(|_| {}));
    let mutants: Vec<_> = mutants().into_iter().filter(|it| is_wanted(&it.name)).collect();
    let (next, missed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let expected = SURVIVORS.iter().copied().filter(|name| is_wanted(name));
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
                        let Mutation { old, new, .. } = &mutant.mutation;
                        println!("not found: {}\n    {old}\n    {new}", mutant.name);
                        missed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    drop(std::panic::take_hook());
    let (all, missed, expected) = (mutants.len(), missed.into_inner(), expected.into_inner());
    let stale = expected.unwrap();
    assert!(missed == 0 && stale.is_empty(), "{missed} of {all} not found; found: {stale:?}");
}
