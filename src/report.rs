//! What rlock tells people: always on stderr, one line at a time, and never worth dying for.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::system::clock::Instant;
use crate::system::poll::{Want, is_ready};
use crate::text::{at_most, printable};

/// How much to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

/// What somebody we depend on has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Diagnostic {
    /// For those who want to know what happens.
    Detail(String),
    /// For everybody: it works, but should be mended.
    Warning(String),
}

/// A failure in words, told as `problem; remedy`. The remedy is a field, so that a message that
/// wraps the problem in another sentence still ends with one remedy, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    problem: String,
    remedy: Option<String>,
}

impl Fault {
    /// A problem without a remedy.
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: None }
    }

    /// Sets what the operator can do about it: an imperative, without a period.
    pub(crate) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// Rewords the problem and keeps the remedy.
    pub(crate) fn reworded(self, reword: impl FnOnce(&str) -> String) -> Self {
        Self { problem: reword(&self.problem), ..self }
    }

    /// The problem alone, for a message that ends in another way.
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }

    /// The remedy alone.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

/// Tells about one command, on one lock where it has one. All clones write to the same stderr.
#[derive(Clone)]
pub(crate) struct Report {
    subject: String,
    verbosity: Verbosity,
    started: Instant,
    /// Is there a line at the terminal that is overwritten again and again?
    makes_way: Arc<AtomicBool>,
}

impl Report {
    pub(crate) fn new(subject: Option<&dyn Display>, verbosity: Verbosity) -> Self {
        let subject = subject.map_or(String::new(), |subject| format!("{subject}: "));
        let makes_way = Arc::default();
        Self { subject, verbosity, started: Instant::now(), makes_way }
    }

    /// What all lines begin with: the lock and a colon, or nothing.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    pub(crate) fn is_normal(&self) -> bool {
        self.verbosity == Verbosity::Normal
    }

    /// Whether from now on a line takes the place of what is on the terminal's present one.
    pub(crate) fn make_way(&self, makes_way: bool) {
        self.makes_way.store(makes_way, Ordering::Relaxed);
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

    /// What others have said, each as it is meant.
    pub(crate) fn diagnostics(&self, diagnostics: Vec<Diagnostic>) {
        for diagnostic in diagnostics {
            match diagnostic {
                Diagnostic::Detail(what) => self.detail(what),
                Diagnostic::Warning(what) => self.warn(what),
            }
        }
    }

    fn line(&self, what: &dyn Display) {
        let way = if self.makes_way.load(Ordering::Relaxed) { "\r\x1b[K" } else { "" };
        write_line(way, &format!("{}{what}", self.subject));
    }
}

/// What went wrong before anybody knows which command it is about.
pub(crate) fn alert(what: impl Display) {
    write_line("", &what.to_string());
}

/// One write, so that lines of several processes do not mix. If nobody takes it, it is dropped: a
/// full pipe must not keep us from stopping a command that has lost its lock. (A pipe that is ready
/// to be written takes a page of 4 KiB.)
///
/// All that rlock tells people passes here, so whoever wrote a part of it, it is one line that does
/// nothing to a terminal.
fn write_line(way: &str, what: &str) {
    let line = format!("rlock: {}", printable(what));
    let line = format!("{way}{}\n", at_most(4000, &line));
    let mut stderr = io::stderr();
    if is_ready(stderr.as_fd(), Want::Write) {
        let _ = stderr.write_all(line.as_bytes());
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
