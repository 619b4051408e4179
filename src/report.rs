//! What rlock tells people: always on stderr, one line at a time, and never worth dying for.

use std::fmt::Display;
use std::io::{self, Write};

use crate::clock::Instant;

/// How much to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

/// Tells about one command, on one lock where it has one.
pub(crate) struct Report {
    subject: String,
    verbosity: Verbosity,
    started: Instant,
}

impl Report {
    pub(crate) fn new(subject: Option<&dyn Display>, verbosity: Verbosity) -> Self {
        let subject = subject.map_or(String::new(), |subject| format!("{subject}: "));
        Self { subject, verbosity, started: Instant::now() }
    }

    /// What went wrong.
    pub(crate) fn warn(&self, what: impl Display) {
        self.line(&what);
    }

    /// What is as it should be but takes time, unless quiet.
    pub(crate) fn note(&self, what: impl Display) {
        if self.verbosity >= Verbosity::Normal {
            self.line(&what);
        }
    }

    /// What happens behind the scenes, with the time since the start.
    pub(crate) fn detail(&self, what: impl Display) {
        if self.verbosity >= Verbosity::Verbose {
            let elapsed = Instant::now().since(self.started);
            self.line(&format_args!("[{:.3}s] {what}", elapsed.as_secs_f64()));
        }
    }

    fn line(&self, what: &dyn Display) {
        // One write, so that lines of several processes do not mix. Nothing to do if it fails.
        let line = format!("rlock: {}{what}\n", self.subject);
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// An error of the system's in words only, without Rust's "(os error 111)".
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}
