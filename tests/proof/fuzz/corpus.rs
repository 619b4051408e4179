//! Runs the checks on the corpus and on random changes to it, without libFuzzer.

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

type Check = fn(&[u8]);

/// The checks by the name of their fuzz target.
const CHECKS: [(&str, Check); 6] = [
    ("command_lines", super::command_lines),
    ("lock_files", super::lock_files),
    ("replies", super::replies),
    ("server", super::server),
    ("urls", super::urls),
    ("words", super::words),
];

/// Bytes at which parsers, arithmetic and terminals break.
const PARTS: [&str; 16] = [
    "",
    "\0",
    "\r\n",
    "-1",
    "0",
    "65536",
    "9007199254740993",
    "18446744073709551615",
    "1e400",
    "\u{1b}[2J",
    "\u{202e}",
    "é",
    "%00",
    "://",
    "[",
    "\"",
];

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{target}: {error}"));
    let inputs: Vec<_> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!inputs.is_empty(), "{target} has no corpus");
    inputs
}

#[test]
fn no_input_of_the_corpus_breaks_a_promise() {
    for (target, check) in CHECKS {
        for input in corpus(target) {
            // Shown if the check fails.
            println!("{target}: b\"{}\"", input.escape_ascii());
            check(&input);
        }
    }
}

#[test]
fn no_change_to_the_corpus_breaks_a_promise() {
    for (target, check) in CHECKS {
        let part = prop_oneof![
            select(&PARTS[..]).prop_map(|part| part.as_bytes().to_vec()),
            vec(any::<u8>(), 0..4),
        ];
        let change = (any::<Index>(), 0..16usize, part);
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(input in select(corpus(target)), changes in vec(change, 1..5))| {
            let mut input = input;
            for (at, length, part) in changes {
                let start = at.index(input.len() + 1);
                let end = input.len().min(start + length);
                input.splice(start..end, part);
            }
            println!("{target}: b\"{}\"", input.escape_ascii());
            check(&input);
        });
    }
}
