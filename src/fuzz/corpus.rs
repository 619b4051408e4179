//! Runs the checks on the corpus and on mutations of it, without libFuzzer.

use std::fs;
use std::path::{Path, PathBuf};

use super::mutation::Random;

type Check = fn(&[u8]);

/// The checks by the name of their fuzz target.
const CHECKS: [(&str, Check); 9] = [
    ("command_lines", super::command_lines),
    ("durations", super::durations),
    ("enclosing_holds", super::enclosing_holds),
    ("lock_files", super::lock_files),
    ("names", super::names),
    ("prints", super::prints),
    ("replies", super::replies),
    ("server", super::server),
    ("urls", super::urls),
];

/// How many mutations of each input are checked.
const ROUNDS: u64 = 25;

/// Prints the input if its check fails.
struct Running<'a>(&'a str, &'a [u8]);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(target, input) = self;
            eprintln!("{target} fails on this input: b\"{}\"", input.escape_ascii());
        }
    }
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{target}: {error}"));
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

fn run(target: &str, check: Check, input: &[u8]) {
    let _running = Running(target, input);
    check(input);
}

#[test]
fn no_input_of_the_corpus_breaks_a_promise() {
    for (target, check) in CHECKS {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{target} has no corpus");
        for (_, input) in corpus {
            run(target, check, &input);
        }
    }
}

/// `RLOCK_TEST_ROUNDS` sets how many mutations of each input to check, and `RLOCK_TEST_SEED` where
/// they start.
#[test]
fn no_mutation_of_the_corpus_breaks_a_promise() {
    let variable = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (rounds, seed) = (variable("RLOCK_TEST_ROUNDS"), variable("RLOCK_TEST_SEED"));
    let mut random = Random(seed.unwrap_or(1));
    for (target, check) in CHECKS {
        let corpus = corpus(target);
        for ((_, input), (_, other)) in corpus.iter().zip(corpus.iter().cycle().skip(7)) {
            for _ in 0..rounds.unwrap_or(ROUNDS) {
                run(target, check, &random.mutated(input, other));
            }
        }
    }
}

#[test]
fn every_check_is_a_fuzz_target() {
    let manifest = include_str!("../../fuzz/Cargo.toml");
    let names: Vec<_> = manifest.lines().filter_map(|line| line.strip_prefix("name = ")).collect();
    let checks = CHECKS.map(|(target, _)| format!("{target:?}"));
    assert_eq!(names[1..], checks);
    for (target, _) in CHECKS {
        let path = format!("{}/fuzz/fuzz_targets/{target}.rs", env!("CARGO_MANIFEST_DIR"));
        assert!(fs::read_to_string(path).unwrap().contains(&format!("rlock::fuzz::{target}(")));
    }
}
