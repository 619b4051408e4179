//! The files that a lock on `local:` takes.

use std::fs;
use std::path::Path;

use crate::recording::NAME;
use crate::support::{self, Running};

pub(super) fn measure() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let url = format!("local:{}", directory.path().display());
    let exec = |command: &str| {
        let mut exec = support::rlock(["exec", NAME, "--", "sh", "-c", command]);
        Running::start(exec.env("RLOCK_URL", &url))
    };
    let files = || about(NAME, directory.path());
    let mut holder = exec(support::READY);
    holder.line();
    let held = files();
    let mut waiter = exec("true");
    waiter.told("waiting at position");
    let awaited = files();
    holder.finish();
    waiter.finish();
    let released = files();
    println!("  files of a lock on local:");
    for (state, (number, bytes)) in
        [("held", held), ("held, with one waiter", awaited), ("released", released)]
    {
        println!("    {state}: {number} files, {bytes} B");
    }
}

/// How many files belong to locks, and their size in bytes.
fn about(name: &str, directory: &Path) -> (usize, u64) {
    let entries = fs::read_dir(directory).expect("the directory exists").flatten();
    let sizes: Vec<u64> = entries
        .filter(|entry| {
            let file = entry.file_name().to_string_lossy().into_owned();
            file.contains(name) || file.ends_with(".mail")
        })
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .collect();
    (sizes.len(), sizes.iter().sum())
}
