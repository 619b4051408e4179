//! The file of one lock, while it is ours to change.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use nix::sys::signal::SigSet;
use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::error::Error;
use crate::clock::Instant;
use crate::lock::Key;
use crate::poll::{Want, ready};
use crate::store::model::Lock;

/// The first line of every file. Another version may have another number.
const HEADER: &str = "rlock lock 1\n";

/// The file of a lock, locked, and what is in it.
pub(super) struct LockFile {
    path: PathBuf,
    _locked: Flock<File>,
    clock: Clock,
    pub(super) lock: Lock,
}

/// What is in the file.
#[derive(Serialize, Deserialize)]
struct Content<L> {
    clock: Clock,
    lock: L,
}

/// Time that goes by the clock since boot, so that nobody can set it, counted from when a wall
/// clock was looked at once, so that people can read it and it grows from boot to boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Clock {
    boot: String,
    /// In milliseconds since the epoch.
    booted: u64,
}

impl Clock {
    fn start() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned();
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let booted = millis(epoch).saturating_sub(Instant::now().millis_since_boot());
        Ok(Self { boot, booted })
    }

    fn now(&self) -> u64 {
        self.booted + Instant::now().millis_since_boot()
    }
}

impl LockFile {
    /// Opens and locks the file, until `until`; `None` if there is none and none is to be made.
    pub(super) fn open(
        directory: &Directory,
        key: &Key,
        may_create: bool,
        until: Instant,
    ) -> Result<Option<Self>, Error> {
        if !directory.exists(may_create)? {
            return Ok(None);
        }
        let path = directory.file(key);
        let fail = |error: io::Error| Error::of(&path, &error);
        let clock = Clock::start().map_err(fail)?;
        let mut locked = loop {
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
                Ok(file) => {
                    let locked = lock(file, until)?;
                    // It may have been replaced while we waited.
                    if is_at(&locked, &path) {
                        break locked;
                    }
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
                Err(_) if !may_create => return Ok(None),
                Err(_) => create(directory, &path, &clock)?,
            }
        };
        let mut text = String::new();
        locked.read_to_string(&mut text).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(&path),
            _ => fail(error),
        })?;
        let json = text.strip_prefix(HEADER).ok_or_else(|| damaged(&path))?;
        let content: Content<Lock> = serde_json::from_str(json).map_err(|_| damaged(&path))?;
        let is_of_this_boot = content.clock.boot == clock.boot;
        Ok(Some(match is_of_this_boot {
            true => Self { path, _locked: locked, clock: content.clock, lock: content.lock },
            // Nobody has survived it.
            false => Self { path, _locked: locked, clock, lock: content.lock.after_a_reboot() },
        }))
    }

    /// The time for this lock, in milliseconds since the epoch.
    pub(super) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Puts the lock as it is now in place of the file, in one step, and lets go of it.
    pub(super) fn write(self) -> Result<(), Error> {
        let fail = |error: io::Error| Error::of(&self.path, &error);
        let text = text(&self.clock, &self.lock).map_err(fail)?;
        let draft = Draft::write(&self.path, &text, false)?;
        fs::rename(&draft.path, &self.path).map_err(fail)
    }
}

/// Removes the file of a lock of which there is nothing to remember but its fence. What is in use,
/// or not a lock's file, is left alone.
pub(super) fn remove_if_unused(path: &Path) -> io::Result<()> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let Ok(mut locked) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(()) };
    let mut text = String::new();
    locked.read_to_string(&mut text)?;
    let content = text.strip_prefix(HEADER).and_then(|json| serde_json::from_str(json).ok());
    let content: Option<Content<Lock>> = content;
    let boot = Clock::start()?.boot;
    let is_unused = content.is_some_and(|it| it.clock.boot != boot || it.lock.is_unused());
    if is_unused && is_at(&locked, path) { fs::remove_file(path) } else { Ok(()) }
}

fn damaged(path: &Path) -> Error {
    Error::Unusable(format!(
        "{} is damaged, or not a lock's file; if nobody has the lock, remove it",
        path.display()
    ))
}

fn text(clock: &Clock, lock: &Lock) -> io::Result<String> {
    let json = serde_json::to_string(&Content { clock: clock.clone(), lock })?;
    Ok(format!("{HEADER}{json}\n"))
}

/// A new file has something in it from the first moment, so that an empty one is never taken for
/// a lock that is free. It is on the disk before anybody counts on it, since after a power failure
/// an empty file would be in everybody's way.
fn create(directory: &Directory, path: &Path, clock: &Clock) -> Result<(), Error> {
    let fail = |error: io::Error| Error::of(path, &error);
    if let Some(parent) = path.parent().filter(|parent| *parent != directory.path()) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(fail)?;
    }
    let draft = Draft::write(path, &text(clock, &Lock::default()).map_err(fail)?, true)?;
    match fs::hard_link(&draft.path, path) {
        // Somebody else was first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.map_err(fail),
    }
}

/// A file that is not yet what it is to be; removed unless it was renamed.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn write(destination: &Path, text: &str, sync: bool) -> Result<Self, Error> {
        let name = format!(".{}", uuid::Uuid::new_v4());
        let draft = Self { path: destination.with_file_name(name) };
        let written = File::create_new(&draft.path).and_then(|mut file| {
            // Whatever the umask, and whoever looks after somebody else's locks as root.
            file.set_permissions(Permissions::from_mode(0o600))?;
            if let Ok(there) = fs::symlink_metadata(destination)
                && there.uid() != file.metadata()?.uid()
            {
                fchown(&file, Some(there.uid()), Some(there.gid()))?;
            }
            file.write_all(text.as_bytes())?;
            if sync { file.sync_data() } else { Ok(()) }
        });
        // Of the file that is meant, not of the draft.
        written.map_err(|error| Error::of(destination, &error))?;
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Waits for the lock on a file in the kernel's queue, which is fair where trying again and again is
/// not. flock(2) knows no timeout, so it is waited for on a thread of its own, which is left behind
/// if it takes too long and lets go of the file at once when it gets it.
fn lock(file: File, until: Instant) -> Result<Flock<File>, Error> {
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(locked) => return Ok(locked),
        Err((file, Errno::EWOULDBLOCK)) => file,
        Err((_, errno)) => return Err(unlockable(errno)),
    };
    let fail = |error: io::Error| Error::Full(format!("cannot wait for a file: {error}"));
    let (done, signal_done) = UnixStream::pair().map_err(fail)?;
    let (sender, receiver) = mpsc::channel();
    let waiting = std::thread::Builder::new().name("flock".into()).spawn(move || {
        // They are the main thread's, stops above all.
        let _ = SigSet::all().thread_block();
        let _ = sender.send(blocking(file));
        drop(signal_done);
    });
    waiting.map_err(fail)?;
    ready([(done.as_fd(), Want::Read)], Some(until)).map_err(fail)?;
    match receiver.try_recv() {
        Ok(locked) => locked.map_err(unlockable),
        Err(_) => Err(Error::Busy),
    }
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
    Error::Unusable(format!("cannot lock files there: {errno}"))
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
