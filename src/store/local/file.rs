//! The files of one lock, while they are ours to change.
//!
//! A lock has two: its state, which is hidden and says everything, and its guard, which people see
//! and which says nothing by what is in it. Whoever deletes the guard of a lock that is held has
//! revoked it, as whoever deletes the key on a server: the state still knows the holders, and keeps
//! everybody else out until they have let go.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::fchown;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::FileStat;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use super::clock::{Clock, Dates, Timeline};
use super::directory::{Directory, Place, new_draft};
use super::error::Error;
use super::folder::{Folder, is_file, not_a_file};
use crate::lock::Key;
use crate::store::model::Lock;
use crate::system::clock::Instant;
use crate::system::poll::{Want, wait};
use crate::system::thread;

/// The first line of every state. Another version may have another number.
const HEADER: &str = "rlock lock 2\n";

/// What stands in a guard, for those who look.
const WHAT_IT_IS: &str = "This is an rlock lock. Deleting this file revokes the lock.\n";

/// The state of a lock, locked, and what is in it.
pub(super) struct LockFile {
    place: Place,
    _locked: Flock<File>,
    status: FileStat,
    has_guard: bool,
    timeline: Timeline,
    pub(super) lock: Lock,
    /// The mailbox of each waiter that has one, by its token. What they are called tells nobody
    /// the token, since anybody may list the directory.
    pub(super) mail: BTreeMap<String, String>,
}

/// What is in a state.
#[derive(Default, Serialize, Deserialize)]
struct Content {
    lock: Lock,
    dates: Dates,
    mail: BTreeMap<String, String>,
}

impl LockFile {
    /// Opens and locks the state, until `until`; `None` if there is none and none is to be made.
    pub(super) fn open(
        directory: &Directory,
        key: &Key,
        may_create: bool,
        clock: &Clock,
        until: Instant,
    ) -> Result<Option<Self>, Error> {
        let Some(place) = directory.place(key, may_create)? else { return Ok(None) };
        let fail = |error: io::Error| Error::of(&place.path(&place.state), &error);
        let access = if may_create { OFlag::O_RDWR } else { OFlag::O_RDONLY };
        let (locked, status) = loop {
            match place.folder.file(&place.state, access) {
                Ok((file, status)) => {
                    let locked = lock(file, until)?;
                    if is_at(&place, &status).map_err(fail)? {
                        break (locked, status);
                    }
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
                Err(_) if !may_create && has_guard(&place)? => return Err(damaged(&place)),
                Err(_) if !may_create => return Ok(None),
                Err(_) => match place.folder.new_file(&place.state) {
                    // Whoever locks it first makes a state of it.
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(fail(error)),
                },
            }
        };
        Self::read(place, locked, status, may_create, clock)
    }

    /// The same for one that is to be looked through, unless somebody is at work on it.
    pub(super) fn open_idle(place: Place, clock: &Clock) -> Result<Option<Self>, Error> {
        let fail = |error: io::Error| Error::of(&place.path(&place.state), &error);
        let (file, status) = place.folder.file(&place.state, OFlag::O_RDWR).map_err(fail)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) if is_at(&place, &status).map_err(fail)? => {
                // One that is empty was left behind by a process that was killed.
                Self::read(place, locked, status, true, clock)
            }
            _ => Ok(None),
        }
    }

    fn read(
        place: Place,
        mut locked: Flock<File>,
        status: FileStat,
        may_create: bool,
        clock: &Clock,
    ) -> Result<Option<Self>, Error> {
        let fail = |error: io::Error| Error::of(&place.path(&place.state), &error);
        let has_guard = has_guard(&place)?;
        let mut text = String::new();
        locked.read_to_string(&mut text).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged(&place),
            _ => fail(error),
        })?;
        let content = match text.as_str() {
            // New. One that has a guard is not: what was in it is lost.
            "" if !has_guard && !may_create => return Ok(None),
            "" if !has_guard => {
                let new = Content::default();
                let begun = text_of(&new).and_then(|text| locked.write_all(text.as_bytes()));
                if let Err(error) = begun {
                    let _ = place.folder.remove(&place.state);
                    return Err(fail(error));
                }
                new
            }
            text => {
                let json = text.strip_prefix(HEADER).ok_or_else(|| damaged(&place))?;
                serde_json::from_str::<Content>(json).map_err(|_| damaged(&place))?
            }
        };
        let Content { mut lock, dates, mail } = content;
        if !has_guard {
            lock.lose_guard();
        }
        let timeline = Timeline::read(dates, clock, &mut lock);
        Ok(Some(Self { place, _locked: locked, status, has_guard, timeline, lock, mail }))
    }

    /// The time for this lock, in milliseconds since the epoch.
    pub(super) fn now(&self) -> u64 {
        self.timeline.now()
    }

    pub(super) fn folder(&self) -> &Arc<Folder> {
        &self.place.folder
    }

    /// Takes those mailboxes off the list whose owners are gone.
    pub(super) fn take_orphaned_mail(&mut self) -> Vec<String> {
        let known: HashSet<&str> = self.lock.tokens().collect();
        let orphaned = self.mail.keys().filter(|token| !known.contains(token.as_str()));
        let orphaned: Vec<String> = orphaned.cloned().collect();
        orphaned.iter().filter_map(|token| self.mail.remove(token)).collect()
    }

    /// Puts the lock as it is now in place of the state, in one step, and lets go of it.
    pub(super) fn write(mut self) -> Result<(), Error> {
        let state = self.place.path(&self.place.state);
        let fail = |error: io::Error| Error::of(&state, &error);
        // The guard first: a state without one is revoked. The other way round, a guard without a
        // hold means nothing.
        if self.lock.is_guarded() && !self.has_guard {
            make_guard(&self.place)?;
        }
        let dates = self.timeline.write(&mut self.lock);
        let content = Content { lock: self.lock, dates, mail: self.mail };
        let text = text_of(&content).map_err(fail)?;
        let draft = Draft::write(&self.place.folder, &self.status, &text).map_err(fail)?;
        draft.replace(&self.place.state).map_err(fail)
    }

    /// Removes the files of a lock of which there is nothing to remember, if all of it was over
    /// before `moment`; else keeps that it was seen.
    pub(super) fn remove_if_unused_since(self, moment: u64) -> Result<(), Error> {
        if !self.lock.is_unused_since(moment) {
            return if self.timeline.has_first_sight() { self.write() } else { Ok(()) };
        }
        let Place { folder, guard, state, .. } = &self.place;
        // The guard first: one without a state is a lock whose state was lost.
        let removed = if self.has_guard { folder.remove(guard) } else { Ok(()) };
        let removed = removed.and_then(|()| folder.remove(state));
        removed.map_err(|error| Error::of(&self.place.path(state), &error))
    }
}

/// It may have been replaced while we waited.
fn is_at(place: &Place, ours: &FileStat) -> io::Result<bool> {
    let there = place.folder.status_of(&place.state)?;
    Ok(there.is_some_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)))
}

fn has_guard(place: &Place) -> Result<bool, Error> {
    let fail = |error: io::Error| Error::of(&place.path(&place.guard), &error);
    match place.folder.status_of(&place.guard).map_err(fail)? {
        None => Ok(false),
        Some(status) if is_file(&status) => Ok(true),
        Some(_) => Err(fail(not_a_file())),
    }
}

fn make_guard(place: &Place) -> Result<(), Error> {
    let made = place.folder.new_file(&place.guard);
    let made = made.and_then(|mut file| file.write_all(WHAT_IT_IS.as_bytes()));
    made.map_err(|error| Error::of(&place.path(&place.guard), &error))
}

fn damaged(place: &Place) -> Error {
    Error::Unusable(format!(
        "{}: damaged lock file; if the lock is not in use, remove it and {}",
        place.path(&place.state).display(),
        place.path(&place.guard).display(),
    ))
}

fn text_of(content: &Content) -> io::Result<String> {
    let json = serde_json::to_string(content)?;
    Ok(format!("{HEADER}{json}\n"))
}

/// A file that is not yet what it is to be; removed unless it is put there.
struct Draft<'a> {
    folder: &'a Folder,
    name: Option<String>,
}

impl<'a> Draft<'a> {
    /// It belongs to whom the one belongs that it is to replace: root may look after other
    /// people's locks.
    fn write(folder: &'a Folder, replaced: &FileStat, text: &str) -> io::Result<Self> {
        let name = new_draft();
        let mut file = folder.new_file(&name)?;
        let draft = Self { folder, name: Some(name) };
        if replaced.st_uid != geteuid().as_raw() {
            fchown(&file, Some(replaced.st_uid), Some(replaced.st_gid))?;
        }
        file.write_all(text.as_bytes())?;
        Ok(draft)
    }

    fn replace(mut self, name: &str) -> io::Result<()> {
        let Some(own) = &self.name else { return Ok(()) };
        self.folder.rename(own, name)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = self.folder.remove(name);
        }
    }
}

/// Waits for the lock on a file in the kernel's queue, which is fair where trying again and again is
/// not. flock(2) knows no timeout, so it runs on its own thread. If it takes too long, that thread
/// is left behind and unlocks the file as soon as it has locked it.
fn lock(file: File, until: Instant) -> Result<Flock<File>, Error> {
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(locked) => return Ok(locked),
        Err((file, Errno::EWOULDBLOCK)) => file,
        Err((_, errno)) => return Err(unlockable(errno)),
    };
    let fail = |error: io::Error| Error::Full(format!("cannot wait for a file: {error}"));
    let locking = thread::call("flock", move || blocking(file)).map_err(fail)?;
    wait(Some((locking.as_fd(), Want::Read)), None, until).map_err(fail)?;
    match locking.result() {
        Some(locked) => locked.map_err(unlockable),
        None => Err(Error::Busy),
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
