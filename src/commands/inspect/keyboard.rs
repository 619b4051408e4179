//! What ends `inspect --watch` at a terminal: `q`, Ctrl-C or another signal, none of them in the middle
//! of a frame. Keys take effect without Enter, and are not shown.

use std::io::{IsTerminal, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use nix::libc::SIGINT;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getpgrp, tcgetpgrp};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::commands::output;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::rules::Instant;
use crate::system::inherited::Inherited;
use crate::system::poll::{Want, is_ready, ready};
use crate::system::signals::Signals;
use crate::system::thread;

/// Erases the line of the cursor, which may show `^C`, and shows the cursor.
const RESTORE: &str = "\r\x1b[K\x1b[?25h";

/// How long a frame may delay the end. If the terminal stops (^S) in the middle of one, it is left so.
const FRAME_TIME: Duration = Duration::from_millis(500);

/// How soon keys count again after rlock has come back to the foreground.
const CHECK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
pub(super) struct Keyboard {
    /// Whether a frame is being written, and what announces its end.
    frame: Arc<(Mutex<bool>, Condvar)>,
    /// The mode that the terminal had, if it was changed.
    before: Arc<Mutex<Option<Termios>>>,
}

impl Keyboard {
    /// Handles keys and signals from now on, if stdout is a terminal.
    pub(super) fn listen(inherited: Inherited) -> Result<Self, Error> {
        let keyboard = Self::default();
        if stdout().is_terminal() {
            // Both on threads, so a server that does not answer cannot delay them.
            let mut signals = Signals::listen(inherited).context("cannot listen for signals")?;
            let its = keyboard.clone();
            match ctrlc::try_set_handler(move || its.end(Exit::Signal(SIGINT))) {
                // The caller ignores it, as nohup and `&` do, so rlock does too.
                Err(ctrlc::Error::MultipleHandlers) => {}
                handled => handled.context("cannot handle Ctrl-C")?,
            }
            SigSet::from(Signal::SIGINT).thread_unblock().context("cannot receive Ctrl-C")?;
            let its = keyboard.clone();
            let listen = move || {
                loop {
                    let _ = ready([(signals.readable(), Want::Read)], None);
                    if let Some(signal) = signals.first() {
                        its.end(Exit::Signal(signal as i32));
                    }
                }
            };
            thread::start("signals", listen).context("cannot listen for signals")?;
            let its = keyboard.clone();
            let listen = move || {
                await_q();
                its.end(Exit::Status(exit::OK));
            };
            thread::start("keyboard", listen).context("cannot listen for keys")?;
        }
        Ok(keyboard)
    }

    /// Writes a frame to stdout, all of it before anything ends rlock.
    pub(super) fn draw(&self, frame: &str) -> Result<(), Error> {
        // A terminal that is stopped (^S) must not delay the end either.
        ready([(stdout().as_fd(), Want::Write)], None).context("cannot wait")?;
        self.draws(true);
        let by_line = LocalModes::ICANON | LocalModes::ECHO;
        // At each frame, because a shell resets the mode while rlock is suspended.
        if stdout().is_terminal()
            && is_foreground()
            && let Ok(mut mode) = tcgetattr(stdin())
            && mode.local_modes.contains(by_line)
        {
            *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(mode.clone());
            mode.local_modes.remove(by_line);
            let _ = tcsetattr(stdin(), OptionalActions::Now, &mode);
        }
        let drawn = output::text(frame);
        self.draws(false);
        drawn
    }

    fn draws(&self, draws: bool) {
        let (drawing, drawn) = &*self.frame;
        *drawing.lock().unwrap_or_else(PoisonError::into_inner) = draws;
        drawn.notify_all();
    }

    /// Ends rlock while no frame is written.
    fn end(&self, exit: Exit) {
        let (drawing, drawn) = &*self.frame;
        let drawing = drawing.lock().unwrap_or_else(PoisonError::into_inner);
        // While this is locked, no other frame begins.
        let _drawing = drawn.wait_timeout_while(drawing, FRAME_TIME, |drawing| *drawing);
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mode) = before.as_ref().filter(|_| is_foreground()) {
            let _ = tcsetattr(stdin(), OptionalActions::Now, mode);
        }
        if is_ready(stdout().as_fd(), Want::Write) {
            let _ = output::text(RESTORE);
        }
        std::process::exit(exit.die_or_status());
    }
}

/// Waits until the user types `q`; forever if keys cannot be read.
fn await_q() {
    let (stdin, mut typed) = (stdin(), [0; 64]);
    loop {
        // rlock may have come back to the foreground meanwhile.
        let until = Some(Instant::now() + CHECK_EVERY);
        let has_key = match is_foreground() {
            true => ready([(stdin.as_fd(), Want::Read)], until),
            false => ready([], until).map(|[]| [false]),
        };
        if has_key.is_ok_and(|[has_key]| has_key) {
            let count = rustix::io::read(&stdin, &mut typed).unwrap_or(0);
            if typed[..count].contains(&b'q') {
                return;
            }
        }
    }
}

/// Whether rlock may use the terminal on stdin.
fn is_foreground() -> bool {
    tcgetpgrp(stdin()) == Ok(getpgrp())
}
