//! Locks the files themselves, with flock(2).

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::FileStat;
use rustix::fs::{FlockOperation, flock};

use super::directory::LockPaths;
use crate::rules::{Delivery, Failure, FailureKind, Instant, SystemCall, UserMessage};
use crate::store::blocking::{pause, received};
use crate::store::denial;
use crate::store::wire::{Limit, note_answer};
use crate::system::channel::Receiver;
use crate::system::thread;

/// A file that this process has locked, until this is dropped.
pub(super) struct LockedFile(File);

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // For the case that a process that is about to start still has the descriptor. If this
        // fails, the file is unlocked once all have closed it.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// A locked file and its status.
pub(super) type Locked = (LockedFile, FileStat);

/// The pause between two attempts while another thread waits.
const PAUSE: Duration = Duration::from_millis(10);

/// Whether a thread of this process waits in flock(2).
static WAITS: AtomicBool = AtomicBool::new(false);

/// The turn of that thread. Dropping this ends it.
struct WaitingTurn;

impl WaitingTurn {
    /// Returns `None` while another thread waits.
    fn take() -> Option<Self> {
        (!WAITS.swap(true, Ordering::SeqCst)).then(|| Self)
    }
}

impl Drop for WaitingTurn {
    fn drop(&mut self) {
        WAITS.store(false, Ordering::SeqCst);
    }
}

/// Opens the state of a lock, and waits to lock it within the limit; `None` if it is missing.
///
/// Waits in the kernel's queue, which is fair, unlike retrying. flock(2) has no timeout, so another
/// thread waits. If this gives up, the thread is abandoned, and unlocks the file at once when it
/// gets the lock. Until then, or while no thread can start, this retries instead.
pub(super) fn lock(
    paths: &LockPaths,
    access: OFlag,
    limit: Limit<'_>,
) -> Result<Option<Locked>, Failure> {
    let mut why = busy();
    let locking = loop {
        match lock_current(paths, access, FlockOperation::NonBlockingLockExclusive) {
            Err(failure) if !failure.is_unreachable() => return Err(failure),
            Err(_) if Instant::now() < limit.until => {}
            Err(_) => return Err(why),
            done => return done,
        }
        if let Some(turn) = WaitingTurn::take() {
            match wait_in_queue(paths, access, turn) {
                Ok(locking) => break locking,
                Err(error) => {
                    let wait = |why: &str| format!("cannot wait for a lock file: {why}");
                    why = denial::failure(SystemCall::Resource, &error).reworded(wait);
                }
            }
        }
        pause(PAUSE, limit.interrupt)?;
    };
    let locked = received(&locking, limit.interrupt, limit.until);
    locked.map_err(|_| Failure::interrupted(Delivery::NotExecuted))?.unwrap_or_else(|| Err(busy()))
}

/// Locks the state on another thread.
fn wait_in_queue(
    paths: &LockPaths,
    access: OFlag,
    turn: WaitingTurn,
) -> io::Result<Receiver<Result<Option<Locked>, Failure>>> {
    let paths = paths.clone();
    thread::call("flock", move || {
        let locked = lock_current(&paths, access, FlockOperation::LockExclusive);
        drop(turn);
        locked
    })
}

/// The only failure here that is not of the file system.
fn busy() -> Failure {
    let fault = UserMessage::new("other processes have kept the lock file locked for too long");
    let fault = fault.with_remedy("check whether one of them is stopped");
    Failure::new(FailureKind::Unreachable, fault)
}

/// Opens the state and locks it. Starts over if another file has become the state meanwhile.
fn lock_current(
    paths: &LockPaths,
    access: OFlag,
    how: FlockOperation,
) -> Result<Option<Locked>, Failure> {
    let LockPaths { folder, state, .. } = paths;
    let fail = |error: io::Error| paths.failure(state, &error);
    loop {
        let (file, status) = match folder.file(state, access) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(fail)?,
        };
        note_answer();
        match flock(&file, how) {
            Ok(()) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(busy()),
            Err(errno) => return Err(cannot_lock(Errno::from_raw(errno.raw_os_error()))),
        }
        let locked = LockedFile(file);
        if let Some(status) = folder.current(state, &status).map_err(fail)? {
            return Ok(Some((locked, status)));
        }
    }
}

/// Opens the state and locks it without waiting; `None` if that fails.
pub(super) fn lock_idle(paths: &LockPaths) -> Option<Locked> {
    lock_current(paths, OFlag::O_RDWR, FlockOperation::NonBlockingLockExclusive).ok()?
}

fn cannot_lock(errno: Errno) -> Failure {
    let failure = denial::failure(SystemCall::Flock, &errno.into());
    failure.reworded(|why| format!("cannot lock files in the lock directory: {why}"))
}
