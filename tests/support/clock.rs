//! The time of day of a program, which a test sets.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use super::compiled::compiled;

/// A file that holds the time of a program, as clock.c reads it.
pub struct Clock {
    variable: &'static str,
    file: PathBuf,
}

impl Clock {
    /// A clock that is so far ahead, with a new file.
    pub fn ahead(by: Duration, file: PathBuf) -> Self {
        fs::write(&file, i64::try_from(by.as_micros()).unwrap().to_le_bytes()).unwrap();
        Self { variable: "CLOCK_AHEAD", file }
    }

    /// A clock that shows what this file says, in microseconds.
    pub fn of(file: &Path) -> Self {
        Self { variable: "CLOCK", file: file.to_owned() }
    }

    /// Sets the clock forward by so many milliseconds, or back.
    pub fn step(&self, millis: i64) {
        let ahead = i64::from_le_bytes(fs::read(&self.file).unwrap().try_into().unwrap());
        // Programs have mapped the file, so it must not become empty.
        let file = fs::File::options().write(true).open(&self.file).unwrap();
        file.write_all_at(&(ahead + millis * 1_000).to_le_bytes(), 0).unwrap();
    }

    /// Lets a command use this clock.
    pub fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &*LIBRARY).env(self.variable, &self.file);
    }
}

static LIBRARY: LazyLock<PathBuf> =
    LazyLock::new(|| compiled("clock.c", "clock.so", &["-shared", "-fPIC"]));
