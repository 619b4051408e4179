//! Locks the files themselves, with flock(2).

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::FileStat;

use super::directory::LockPaths;
use crate::rules::{Delivery, Failure, Instant, SystemCall, UserMessage};
use crate::store::blocking::{pause, received};
use crate::store::denial;
use crate::system::poll::Interrupt;
use crate::system::thread;

/// A locked file and its status.
pub(super) type Locked = (Flock<File>, FileStat);

/// The longest wait for a file that nothing can interrupt. A release is repeated, and a signal is
/// heard in between.
const UNINTERRUPTED: Duration = Duration::from_secs(1);

/// The pause between two attempts while another thread waits.
const PAUSE: Duration = Duration::from_millis(10);

/// Whether a thread of this process waits in flock(2).
static WAITS: AtomicBool = AtomicBool::new(false);

/// Opens the state of a lock, and waits for up to `patience` to lock it; `None` if it is missing.
///
/// Waits in the kernel's queue, which is fair, unlike retrying. flock(2) has no timeout, so another
/// thread waits. If this gives up, the thread is abandoned, and unlocks the file at once when it
/// gets the lock. Until then, this retries instead: there is only one such thread.
pub(super) fn lock(
    paths: &LockPaths,
    access: OFlag,
    patience: Duration,
    interrupt: Interrupt<'_>,
) -> Result<Option<Locked>, Failure> {
    let until = Instant::now() + interrupt.map_or(patience.min(UNINTERRUPTED), |_| patience);
    loop {
        match lock_current(paths, access, FlockArg::LockExclusiveNonblock) {
            Err(Failure::Unreachable { .. }) if Instant::now() < until => {}
            done => return done,
        }
        if !WAITS.swap(true, Ordering::SeqCst) {
            break;
        }
        pause(PAUSE, interrupt)?;
    }
    let fail = |error: io::Error| {
        let failure = denial::failure(SystemCall::Resource, &error);
        failure.reworded(|why| format!("cannot wait for a lock file: {why}"))
    };
    let locked = paths.clone();
    let locking = move || {
        let locked = lock_current(&locked, access, FlockArg::LockExclusive);
        WAITS.store(false, Ordering::SeqCst);
        locked
    };
    let locking = thread::call("flock", locking).map_err(fail)?;
    let locked = received(&locking, interrupt, until);
    locked.map_err(|_| Failure::Interrupted { sent: false })?.unwrap_or_else(|| Err(busy()))
}

/// The only failure here that is not of the file system.
fn busy() -> Failure {
    let fault = UserMessage::new("other processes have kept the lock file locked for too long");
    let fault = fault.with_remedy("check whether one of them is stopped");
    Failure::unreachable(fault, Delivery::NotSent)
}

/// Opens the state and locks it. Starts over if another file has become the state meanwhile.
fn lock_current(
    paths: &LockPaths,
    access: OFlag,
    how: FlockArg,
) -> Result<Option<Locked>, Failure> {
    let LockPaths { folder, state, .. } = paths;
    let fail = |error: io::Error| paths.failure(state, &error);
    loop {
        let (file, status) = match folder.file(state, access) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(fail)?,
        };
        let locked = match Flock::lock(file, how) {
            Ok(locked) => locked,
            Err((_, Errno::EINTR)) => continue,
            Err((_, Errno::EWOULDBLOCK)) => return Err(busy()),
            Err((_, errno)) => return Err(cannot_lock(errno)),
        };
        if let Some(status) = folder.current(state, &status).map_err(fail)? {
            return Ok(Some((locked, status)));
        }
    }
}

/// Opens the state and locks it without waiting; `None` if that fails.
pub(super) fn lock_idle(paths: &LockPaths) -> Option<Locked> {
    lock_current(paths, OFlag::O_RDWR, FlockArg::LockExclusiveNonblock).ok()?
}

fn cannot_lock(errno: Errno) -> Failure {
    let failure = denial::failure(SystemCall::Flock, &errno.into());
    failure.reworded(|why| format!("cannot lock files in the lock directory: {why}"))
}
