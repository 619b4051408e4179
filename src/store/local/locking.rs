//! Locks on the files themselves, by flock(2).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::FileStat;

use super::error::Error;
use super::folder::Folder;
use crate::report::Fault;
use crate::system::clock::Instant;
use crate::system::poll::{Want, wait};
use crate::system::thread;

/// Waits for the lock on a file in the kernel's queue, which is fair, unlike retrying. flock(2) has
/// no timeout, so another thread waits. If that takes too long, the thread is abandoned, and
/// unlocks the file at once when it gets the lock.
pub(super) fn lock(file: File, until: Instant) -> Result<Flock<File>, Error> {
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(locked) => return Ok(locked),
        Err((file, Errno::EWOULDBLOCK)) => file,
        Err((_, errno)) => return Err(unlockable(errno)),
    };
    let fail =
        |error: io::Error| Error::Full(Fault::new(format!("cannot wait for a lock file: {error}")));
    let locking = thread::call("flock", move || blocking(file)).map_err(fail)?;
    wait(Some((locking.as_fd(), Want::Read)), None, until).map_err(fail)?;
    match locking.result() {
        Some(locked) => locked.map_err(unlockable),
        None => Err(Error::Busy),
    }
}

/// Opens a file and locks it without waiting; `None` if another process has locked it, or has given
/// its name to another file meanwhile.
pub(super) fn lock_idle(
    folder: &Folder,
    name: &str,
) -> io::Result<Option<(Flock<File>, FileStat)>> {
    let (file, status) = folder.file(name, OFlag::O_RDWR)?;
    let Ok(locked) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
    Ok(folder.current(name, &status)?.map(|status| (locked, status)))
}

fn blocking(mut file: File) -> Result<Flock<File>, Errno> {
    loop {
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(locked) => return Ok(locked),
            Err((returned, Errno::EINTR)) => file = returned,
            Err((_, errno)) => return Err(errno),
        }
    }
}

fn unlockable(errno: Errno) -> Error {
    let why = errno.desc().to_lowercase();
    let fault = Fault::new(format!("cannot lock files in the lock directory: {why}"));
    Error::Unusable(fault.with_remedy("use a file system that supports flock"))
}
