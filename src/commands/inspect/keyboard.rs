//! What ends `inspect --watch` at a terminal: `q`, Ctrl-C and other signals, none of them in the
//! middle of a frame. Keys take effect without Enter, and are not shown.

use std::io::{IsTerminal, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use nix::unistd::{getpgrp, tcgetpgrp};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::commands::output;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::rules::Instant;
use crate::system::inherited::Inherited;
use crate::system::poll::{Want, Woken, is_ready, ready, wait};
use crate::system::signals::Signals;
use crate::system::thread;

/// Erases the line of the cursor, which may show `^C`, and shows the cursor.
const RESTORE: &str = "\r\x1b[K\x1b[?25h";

/// How soon keys count again after rlock has come back to the foreground.
const CHECK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
pub(super) struct Keyboard {
    /// Locked while a frame is written.
    frame: Arc<Mutex<()>>,
    /// The mode that the terminal had, if it was changed.
    before: Arc<Mutex<Option<Termios>>>,
}

impl Keyboard {
    /// Handles keys and signals from now on, if stdout is a terminal.
    pub(super) fn listen(inherited: Inherited) -> Result<Self, Error> {
        let keyboard = Self::default();
        if stdout().is_terminal() {
            let mut signals = Signals::listen(inherited).context("cannot listen for signals")?;
            let its = keyboard.clone();
            // On a thread, so a server that does not answer cannot delay it.
            let listen = move || its.end(next_end(&mut signals));
            thread::start("keyboard", listen).context("cannot listen for keys")?;
        }
        Ok(keyboard)
    }

    /// Writes a frame to stdout, all of it before anything ends rlock.
    pub(super) fn draw(&self, frame: &str) -> Result<(), Error> {
        // A terminal that is stopped (^S) must not delay the end either.
        ready([(stdout().as_fd(), Want::Write)], None).context("cannot wait")?;
        let _drawing = self.frame.lock();
        let by_line = LocalModes::ICANON | LocalModes::ECHO;
        // At each frame, because a shell resets the mode while rlock is suspended.
        if is_foreground()
            && let Ok(mut mode) = tcgetattr(stdin())
            && mode.local_modes.contains(by_line)
        {
            *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(mode.clone());
            mode.local_modes.remove(by_line);
            let _ = tcsetattr(stdin(), OptionalActions::Now, &mode);
        }
        output::text(frame)
    }

    /// Ends rlock while no frame is written, unless the terminal stops (^S) in the middle of one.
    fn end(&self, exit: Exit) {
        let _drawn = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            self.frame.try_lock().ok()
        });
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mode) = before.as_ref().filter(|_| is_foreground()) {
            let _ = tcsetattr(stdin(), OptionalActions::Now, mode);
        }
        if is_ready(stdout().as_fd(), Want::Write) {
            let _ = output::text(RESTORE);
        }
        std::process::exit(exit.leave());
    }
}

/// Waits for a key or a signal that ends rlock, and returns how it ends.
fn next_end(signals: &mut Signals) -> Exit {
    let (stdin, mut typed) = (stdin(), [0; 64]);
    loop {
        let key = is_foreground().then_some((stdin.as_fd(), Want::Read));
        let stop = Some(signals.arrival().into());
        match wait(key, stop, Instant::now() + CHECK_EVERY) {
            Ok(Woken::TimedOut) => {}
            Ok(Woken::Ready) => {
                let count = rustix::io::read(&stdin, &mut typed).unwrap_or(0);
                if typed[..count].contains(&b'q') {
                    return Exit::Status(exit::OK);
                }
            }
            _ => {
                return signals
                    .first()
                    .map_or(Exit::Status(exit::OK), |it| Exit::Signal(it as i32));
            }
        }
    }
}

/// Whether rlock may use the terminal on stdin.
fn is_foreground() -> bool {
    tcgetpgrp(stdin()) == Ok(getpgrp())
}
