//! The files of one lock, locked by this process.
//!
//! A lock has two files. The state is hidden and contains everything. The guard is visible, and
//! only its existence counts: deleting the guard of a held lock revokes the holds, like deleting
//! the key on a server. The state still has the holders, so the lock stays taken until they have
//! released it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use nix::fcntl::OFlag;
use nix::sys::stat::FileStat;
use serde::{Deserialize, Serialize};

use super::clock::{Clock, Dates, Timeline};
use super::copies::{self, CopySlot};
use super::directory::{Directory, LockPaths};
use super::folder::{is_file, not_a_file};
use super::locking::LockedFile;
use super::{locking, temp_file};
use crate::rules::model::Lock;
use crate::rules::{Failure, Key};
use crate::store::cell::Access;
use crate::store::wire::Limit;

/// The content of a guard, for users who open it.
const GUARD_TEXT: &str = "This is an rlock lock. Deleting this file revokes the lock.\n";

/// The state of a lock. Its file stays locked until this is dropped.
pub(super) struct LockFile {
    pub(super) paths: LockPaths,
    locked: LockedFile,
    status: FileStat,
    /// Where in the file the next state goes; `None` if the file is new.
    next: Option<CopySlot>,
    has_guard: bool,
    timeline: Timeline,
    pub(super) lock: Lock,
}

/// What a copy contains, as JSON.
#[derive(Default, Serialize, Deserialize)]
struct Content {
    lock: Lock,
    dates: Dates,
}

impl LockFile {
    /// Opens the state, and waits to lock it as `locking::lock` does; `None` if it is missing and
    /// not to be created.
    pub(super) fn open(
        directory: &Directory,
        key: &Key,
        access: Access<'_>,
        clock: &Clock,
        limit: Limit<'_>,
    ) -> Result<Option<Self>, Failure> {
        let may_create = matches!(access, Access::Ask(_));
        let Some(paths) = directory.paths(key, may_create)? else { return Ok(None) };
        let flag = if access == Access::Inspect { OFlag::O_RDONLY } else { OFlag::O_RDWR };
        let (locked, status) = loop {
            if let Some(locked) = locking::lock(&paths, flag, limit)? {
                break locked;
            }
            if !may_create {
                return if has_guard(&paths)? { Err(damaged(&paths)) } else { Ok(None) };
            }
            match paths.folder.new_file(&paths.state) {
                // The first process to lock the empty file writes the state.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(paths.failure(&paths.state, &error));
                }
                _ => {}
            }
        };
        Self::read(paths, locked, status, may_create, clock)
    }

    /// Opens and locks the state for cleanup; `None` if another process has locked it, or it cannot
    /// be read.
    pub(super) fn open_idle(paths: LockPaths, clock: &Clock) -> Option<Self> {
        let (locked, status) = locking::lock_idle(&paths)?;
        Self::read(paths, locked, status, false, clock).ok()?
    }

    fn read(
        paths: LockPaths,
        locked: LockedFile,
        status: FileStat,
        may_create: bool,
        clock: &Clock,
    ) -> Result<Option<Self>, Failure> {
        let fail = |error: io::Error| paths.failure(&paths.state, &error);
        let has_guard = has_guard(&paths)?;
        let size = locked.metadata().map_err(fail)?.len();
        if size > copies::LARGEST {
            return Err(unusable(&paths, "lock file exceeds 64 MiB"));
        }
        let part = |offset, length| {
            let mut part = vec![0; length];
            locked.read_exact_at(&mut part, offset as u64).map(|()| part)
        };
        let size = usize::try_from(size).unwrap_or(0);
        let (content, next) = match copies::newest(size, part).map_err(fail)? {
            Some((copy, next)) => {
                // The checksum is right, so what cannot be read was not damaged.
                (serde_json::from_slice(&copy).map_err(|_| of_another_version(&paths))?, Some(next))
            }
            None if copies::is_of_another_format(&part(0, size.min(64)).map_err(fail)?) => {
                return Err(of_another_version(&paths));
            }
            // If there is a guard, the content was lost.
            None if has_guard || !is_blank(&locked).map_err(fail)? => return Err(damaged(&paths)),
            None if !may_create => return Ok(None),
            None => {
                // A guard, which the first change makes, needs a state.
                let new = Content::default();
                let bytes = serde_json::to_vec(&new).map_err(io::Error::from);
                if let Err(error) = bytes.and_then(|bytes| temp_file::fill(&locked, &bytes)) {
                    let _ = paths.folder.remove(&paths.state);
                    return Err(fail(error));
                }
                (new, None)
            }
        };
        let Content { mut lock, dates } = content;
        if !has_guard {
            lock.guard = None;
        }
        let timeline = Timeline::read(dates, clock, &mut lock).ok_or_else(|| damaged(&paths))?;
        Ok(Some(Self { paths, locked, status, next, has_guard, timeline, lock }))
    }

    /// The time for the lock, in milliseconds since the epoch.
    pub(super) fn now(&self) -> u64 {
        self.timeline.now
    }

    /// Writes the lock as the new state, in one step, and unlocks the file. Returns the tokens of
    /// holds and waiters that are gone.
    pub(super) fn write(self) -> Result<Vec<String>, Failure> {
        let Self { paths, locked, status, next, has_guard, timeline, mut lock } = self;
        // Make the guard first: a state without one is revoked, while a guard without a hold means
        // nothing.
        match lock.guard {
            Some(_) if has_guard => paths.folder.touch(&paths.guard),
            Some(_) => make_guard(&paths)?,
            None => {}
        }
        let (dates, gone) = timeline.write(&mut lock);
        let write = || {
            // With room for a whole copy, so that it is not moved as it grows.
            let mut content = Vec::with_capacity(usize::try_from(status.st_size / 2).unwrap_or(0));
            serde_json::to_writer(&mut content, &Content { lock, dates })?;
            match next.filter(|slot| slot.fits(&content)) {
                Some(slot) => slot.write(&locked, &content),
                None => temp_file::replace(&paths, &status, &content),
            }
        };
        match write() {
            Ok(()) => Ok(gone),
            Err(error) => Err(paths.failure(&paths.state, &error)),
        }
    }

    /// Removes the files of a lock if everything in it ended before `moment`, in milliseconds since
    /// the epoch. Otherwise writes the lock if this clock has seen a part of it for the first time.
    pub(super) fn remove_if_unused_since(self, moment: u64) -> Result<(), Failure> {
        if !self.lock.is_unused_since(moment) {
            return if self.timeline.first_sight { self.write().map(drop) } else { Ok(()) };
        }
        let LockPaths { folder, guard, state, .. } = &self.paths;
        // Remove the guard first: a guard without a state means that the state was lost.
        let removed = if self.has_guard { folder.remove(guard) } else { Ok(()) };
        let removed = removed.and_then(|()| folder.remove(state));
        removed.map_err(|error| self.paths.failure(state, &error))
    }
}

/// Whether a state file is new: empty, or already at its full length but all zeros.
fn is_blank(mut state: &File) -> io::Result<bool> {
    let mut bytes = Vec::new();
    state.read_to_end(&mut bytes)?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

fn has_guard(paths: &LockPaths) -> Result<bool, Failure> {
    let fail = |error: io::Error| paths.failure(&paths.guard, &error);
    match paths.folder.status_of(&paths.guard).map_err(fail)? {
        None => Ok(false),
        Some(status) if is_file(&status) => Ok(true),
        Some(_) => Err(fail(not_a_file())),
    }
}

fn make_guard(paths: &LockPaths) -> Result<(), Failure> {
    let made = paths.folder.new_file(&paths.guard);
    let made = made.and_then(|mut file| file.write_all(GUARD_TEXT.as_bytes()));
    made.map_err(|error| paths.failure(&paths.guard, &error))
}

fn of_another_version(paths: &LockPaths) -> Failure {
    let what = "written by another version of rlock";
    let problem = format!("{}: {what}", paths.path(&paths.state).display());
    Failure::misconfigured(problem, "use that version, or another directory")
}

fn damaged(paths: &LockPaths) -> Failure {
    unusable(paths, "damaged lock file")
}

fn unusable(paths: &LockPaths, why: &str) -> Failure {
    let [state, guard] = [&paths.state, &paths.guard].map(|name| paths.path(name));
    let remedy = format!("if the lock is not in use, remove it and {}", guard.display());
    Failure::misconfigured(format!("{}: {why}", state.display()), remedy)
}
