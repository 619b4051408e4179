//! Ctrl-C in `inspect --watch`. By default it could kill rlock in the middle of a frame, with the
//! cursor hidden, or leave `^C` below the last one.

use std::io::{IsTerminal, stdout};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use nix::libc;

use crate::commands::output;
use crate::error::Error;
use crate::exit::Exit;
use crate::system::poll::{Want, is_ready};

/// Erases the line of the cursor, which shows `^C`, and shows the cursor.
const RESTORE: &str = "\r\x1b[K\x1b[?25h";

/// Lets Ctrl-C end rlock between two frames.
pub(super) struct CtrlC {
    /// Locked while a frame is written.
    frame: Arc<Mutex<()>>,
}

impl CtrlC {
    /// Handles Ctrl-C from now on, if stdout is a terminal and SIGINT is not ignored.
    pub(super) fn handle() -> Result<Self, Error> {
        let frame = Arc::new(Mutex::new(()));
        if stdout().is_terminal() {
            let drawn = Arc::clone(&frame);
            // The handler runs on a thread of the ctrlc crate, so a server that does not answer
            // cannot delay it.
            match ctrlc::try_set_handler(move || {
                // A terminal that is stopped (^S) does not take the rest of a frame.
                let _drawn = (0..500).find_map(|_| {
                    thread::sleep(Duration::from_millis(1));
                    drawn.try_lock().ok()
                });
                end();
            }) {
                // The caller ignores SIGINT (nohup and `&` do), so rlock does too.
                Err(ctrlc::Error::MultipleHandlers) => {}
                handled => handled.context("cannot handle Ctrl-C")?,
            }
        }
        Ok(Self { frame })
    }

    /// Writes a frame to stdout, all of it before Ctrl-C ends rlock, unless the terminal stops.
    pub(super) fn draw(&self, frame: &str) -> Result<(), Error> {
        let _drawing = self.frame.lock();
        output::text(frame)
    }
}

/// Ends rlock as SIGINT does, so that a shell sees status 130.
fn end() {
    if is_ready(stdout().as_fd(), Want::Write) {
        let _ = output::text(RESTORE);
    }
    std::process::exit(Exit::Signal(libc::SIGINT).leave());
}
