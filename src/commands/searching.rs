//! A word on stderr while a search takes long, at a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::os::unix::net::UnixStream;
use std::thread::Builder;
use std::time::Duration;

use crate::clock::Instant;
use crate::poll::{Want, ready};
use crate::progress::Progress;
use crate::report::Report;

/// What takes less is not worth a word.
const LONG: Duration = Duration::from_millis(500);

/// Tells how far a search has come, until what is returned is dropped.
pub(super) fn tell(progress: &Progress, report: &Report) -> Option<UnixStream> {
    if report.is_quiet() || !stderr().is_terminal() {
        return None;
    }
    let (going_on, over) = UnixStream::pair().ok()?;
    let progress = progress.clone();
    let told = move || {
        let mut said = false;
        // An error would mean never to stop.
        while let Ok([false]) =
            ready([(std::os::fd::AsFd::as_fd(&over), Want::Read)], Some(Instant::now() + LONG))
        {
            let _ = write!(stderr(), "\rlooking: {} keys so far", progress.so_far());
            said = true;
        }
        if said {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    };
    Builder::new().name("progress".into()).spawn(told).ok()?;
    Some(going_on)
}
