//! Messages to users: on stderr, one line at a time, or in the system log if there is no stderr. A
//! failure to write one does not end rlock.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::libc;

use crate::rules::Instant;
use crate::system::channel::Receiver;
use crate::system::poll::{Want, is_ready, ready, write_ready};
use crate::system::thread;
use crate::text::{Line, at_most};

/// How long a stderr that blocks, such as a log on a network file system, may keep rlock.
#[derive(Clone, Copy)]
pub(crate) enum StderrWait {
    Endless,
    /// While a command runs, which must be terminated or killed at this moment, if that is known.
    Short(Option<Instant>),
}

const SHORT: Duration = Duration::from_millis(50);

/// How much to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

/// A message from a module that does not print, such as a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Diagnostic {
    /// One step of the work, for --verbose.
    Detail(String),
    /// Normal progress. Printed unless quiet.
    Note(String),
    /// It works, but the user should fix something. Printed even if quiet.
    Warning(String),
}

/// Prints the messages of one command, which may concern one lock. All clones write to the same
/// stderr.
#[derive(Clone)]
pub(crate) struct Report {
    subject: String,
    verbosity: Verbosity,
    started: Instant,
    /// Whether the terminal shows a status line, which a message must erase first.
    erases_line: Arc<AtomicBool>,
    pub(crate) stderr_wait: StderrWait,
    /// The last message, if it has not been written yet.
    unwritten: Arc<Mutex<Option<Receiver<()>>>>,
}

impl Report {
    pub(crate) fn new(subject: Option<&dyn Display>, verbosity: Verbosity) -> Self {
        let subject = subject.map_or(String::new(), |subject| format!("{subject}: "));
        let (erases_line, unwritten) = (Arc::default(), Arc::default());
        let (started, stderr_wait) = (Instant::now(), StderrWait::Endless);
        Self { subject, verbosity, started, erases_line, stderr_wait, unwritten }
    }

    /// The beginning of every line: the lock and a colon, or nothing.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.verbosity == Verbosity::Quiet
    }

    pub(crate) fn is_normal(&self) -> bool {
        self.verbosity == Verbosity::Normal
    }

    /// Sets whether each message erases the terminal's current line first.
    pub(crate) fn erase_line(&self, erases_line: bool) {
        self.erases_line.store(erases_line, Ordering::Relaxed);
    }

    /// Prints a problem, even if quiet.
    pub(crate) fn warn(&self, what: impl Display) {
        self.line(&what);
    }

    /// Prints normal progress, unless quiet.
    pub(crate) fn note(&self, what: impl Display) {
        if self.verbosity >= Verbosity::Normal {
            self.line(&what);
        }
    }

    /// Prints one step of the work and the time since the start, if verbose.
    pub(crate) fn detail(&self, what: impl Display) {
        if self.verbosity >= Verbosity::Verbose {
            let elapsed = Instant::now().since(self.started);
            self.line(&format_args!("[{:.3}s] {what}", elapsed.as_secs_f64()));
        }
    }

    /// Prints the messages of another module, each at its own level.
    pub(crate) fn diagnostics(&self, diagnostics: Vec<Diagnostic>) {
        for diagnostic in diagnostics {
            match diagnostic {
                Diagnostic::Detail(what) => self.detail(what),
                Diagnostic::Note(what) => self.note(what),
                Diagnostic::Warning(what) => self.warn(what),
            }
        }
    }

    /// Prints a problem on the stderr of another process.
    pub(crate) fn warn_on(&self, stderr: File, what: impl Display) {
        let (stderr, line) = (Arc::new(stderr), format!("{}{what}", self.subject));
        self.carry_out(move || write_line(&*stderr, "", &Line::new(&line)));
    }

    /// Writes a problem to the system log, as syslog(3) does.
    pub(crate) fn log(&self, what: impl Display) {
        let line = Line::new(&format!("{}{what}", self.subject));
        let priority = libc::LOG_USER | libc::LOG_ERR;
        let entry = format!("<{priority}>rlock[{}]: {}", std::process::id(), line.as_str());
        // Without a system log there is nothing left to write to.
        let _ = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(entry.as_bytes(), "/dev/log")
        });
    }

    fn line(&self, what: &dyn Display) {
        let erase = if self.erases_line.load(Ordering::Relaxed) { "\r\x1b[K" } else { "" };
        let line = format!("{}{what}", self.subject);
        self.carry_out(move || write_line(&io::stderr(), erase, &Line::new(&line)));
    }

    /// While a command runs, this writes on another thread. As long as that thread blocks, further
    /// messages are dropped.
    fn carry_out(&self, write: impl Fn() + Clone + Send + 'static) {
        let (StderrWait::Short(due), Ok(mut unwritten)) = (self.stderr_wait, self.unwritten.lock())
        else {
            return write();
        };
        if unwritten.as_ref().is_some_and(|last| !is_ready(last.as_fd(), Want::Read)) {
            return;
        }
        let Ok(written) = thread::call("report", write.clone()) else { return write() };
        let until = due.into_iter().fold(Instant::now() + SHORT, Instant::min);
        let _ = ready([(written.as_fd(), Want::Read)], Some(until));
        *unwritten = Some(written);
    }
}

/// Prints a problem that occurs before the subcommand is known.
pub(crate) fn alert(what: impl Display) {
    write_line(&io::stderr(), "", &Line::new(&what.to_string()));
}

/// Writes a line in one write, so that lines of several processes do not mix. If stderr is not
/// ready, the line is dropped: a full pipe must not keep rlock from terminating a command that has
/// lost its lock. A pipe that is ready takes at least a page of 4 KiB.
fn write_line(stderr: &impl AsFd, erase: &str, what: &Line) {
    let line = format!("rlock: {}", what.as_str());
    let line = format!("{erase}{}\n", at_most(4000, &line));
    if is_ready(stderr.as_fd(), Want::Write) {
        let _ = write_ready(stderr.as_fd(), line.as_bytes());
    }
}

/// A system error in words only, without Rust's "(os error 111)".
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}
