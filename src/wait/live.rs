//! The status line of a wait at a terminal, updated every second.

use std::io::{IsTerminal, stderr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::unistd::{getpgrp, tcgetpgrp};

use crate::rules::{Instant, View, show};
use crate::system::poll::{NEVER, Want, Woken, is_ready, wait, write_ready};
use crate::system::thread;
use crate::system::wakeup::Wakeup;
use crate::text::{Line, columns, cut};

const EVERY: Duration = Duration::from_secs(1);

/// What the status line shows.
#[derive(Clone)]
pub(super) struct WaitStatus {
    pub(super) subject: String,
    /// The lock as it was at `then`.
    pub(super) view: View,
    pub(super) then: Instant,
    pub(super) position: u64,
    pub(super) until: Option<Instant>,
}

/// The status line. Dropping this erases it.
pub(super) struct Live {
    status: Arc<Mutex<WaitStatus>>,
    over: Wakeup,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Returns `None` if stderr is not a terminal in the foreground, or if the thread cannot start.
    pub(super) fn start(status: WaitStatus) -> Option<Self> {
        if !stderr().is_terminal() || !is_foreground() {
            return None;
        }
        let over = Wakeup::new().ok()?;
        let stop = over.clone();
        let status = Arc::new(Mutex::new(status));
        let shown = Arc::clone(&status);
        let thread = thread::start("live", move || {
            loop {
                if let Ok(status) = shown.lock() {
                    draw(&status);
                }
                // Stop on an error too, or this loops forever.
                let next = Instant::now() + EVERY;
                if !matches!(wait(None, NEVER.or(stop.as_fd()), next), Ok(Woken::TimedOut)) {
                    return;
                }
            }
        });
        Some(Self { status, over, thread: Some(thread.ok()?) })
    }

    pub(super) fn set(&self, status: WaitStatus) {
        if let Ok(mut present) = self.status.lock() {
            *present = status;
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.over.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        write("\r\x1b[K");
    }
}

impl WaitStatus {
    fn line(&self, now: Instant) -> String {
        let Self { view, then, position, until, .. } = self;
        let view = View { now: view.now + now.since(*then), ..view.clone() };
        // The important parts come first: a narrow terminal cuts the end.
        let left =
            until.map_or(String::new(), |until| format!(", {} left", show(until.since(now))));
        format!("waiting at position {position}{left}: {view}")
    }
}

/// Overwrites the line, and cuts the text to the width of the terminal. The name of the lock, which
/// is known, goes first.
fn draw(status: &WaitStatus) {
    let width = rustix::termios::tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col));
    let width = if width == 0 { 80 } else { width } - 1;
    let short = Line::new(&status.line(Instant::now()));
    let line = Line::new(&format!("rlock: {}{}", status.subject, short.as_str()));
    let fits = columns(line.as_str()) <= width;
    write(&format!("\r{}\x1b[K", cut(if fits { line } else { short }.as_str(), width)));
}

/// Writes nothing if the terminal is stopped (^S) or another job is in its foreground, because the
/// write would block.
fn write(text: &str) {
    let stderr = stderr();
    if is_ready(stderr.as_fd(), Want::Write) && is_foreground() {
        let _ = write_ready(stderr.as_fd(), text.as_bytes());
    }
}

/// Whether rlock is in the foreground of the terminal. A group outside of rlock's PID namespace has
/// the ID 0, on which rustix panics.
fn is_foreground() -> bool {
    tcgetpgrp(stderr()) == Ok(getpgrp())
}
