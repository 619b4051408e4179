//! What rlock promises, one file for each promise. They are one program, because they share `support`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(missing_docs)]

mod support;

mod bounded;
mod cluster;
mod completion;
mod errors;
mod every_signal;
mod exclusion;
mod floors;
mod frozen;
mod hostile;
mod inspect;
mod interop;
mod lease;
mod limits;
mod local;
mod local_clocks;
mod local_deaths;
mod local_directory;
mod modes;
mod nested;
mod packaging;
mod pages;
mod passwords;
mod picture;
mod precedence;
mod quorum;
mod quorum_queue;
mod recipes;
mod removal;
mod retries;
mod round_trips;
mod sandboxes;
mod sentinel;
mod signals;
mod slots;
mod starts;
mod terminal;
mod terminal_table;
mod tls;
mod tokens;
mod transparency;
mod waiting;
mod while_pid;

/// The compiler ignores a file that no `mod` names.
#[test]
fn every_file_is_part_of_the_suite() {
    let this = include_str!("main.rs");
    let manifest = include_str!("../Cargo.toml");
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some(module) = name.strip_suffix(".rs") else { continue };
        let is_named = this.contains(&format!("\nmod {module};"))
            || manifest.contains(&format!("path = \"tests/{name}\""));
        assert!(is_named, "tests/{name} is not compiled: name it in tests/main.rs");
    }
}
