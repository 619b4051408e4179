//! The files of one lock, locked by this process.
//!
//! A lock has two files. The state is hidden and contains everything. The guard is visible, and
//! only its existence counts: deleting the guard of a held lock revokes the holds, like deleting
//! the key on a server. The state still has the holders, so the lock stays taken until they have
//! released it.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{Flock, OFlag};
use nix::sys::stat::FileStat;
use serde::{Deserialize, Serialize};

use super::clock::{Clock, Dates, Timeline};
use super::directory::{Directory, Place};
use super::error::Error;
use super::folder::{Folder, is_file, not_a_file};
use super::{draft, locking};
use crate::lock::Key;
use crate::report::Fault;
use crate::store::model::Lock;
use crate::system::poll::Interrupt;

/// The first line of every state. The number changes with the format.
const HEADER: &str = "rlock lock 2\n";

/// The content of a guard, for users who open it.
const GUARD_TEXT: &str = "This is an rlock lock. Deleting this file revokes the lock.\n";

/// The state of a lock. Its file stays locked until this is dropped.
pub(super) struct LockFile {
    place: Place,
    _locked: Flock<File>,
    status: FileStat,
    has_guard: bool,
    timeline: Timeline,
    pub(super) lock: Lock,
    /// The name of each waiter's mailbox, by the waiter's token. The name does not contain the
    /// token, because other users may list the directory.
    pub(super) mail: BTreeMap<String, String>,
}

/// The content of a state.
#[derive(Default, Serialize, Deserialize)]
struct Content {
    lock: Lock,
    dates: Dates,
    mail: BTreeMap<String, String>,
}

impl LockFile {
    /// Opens the state, and waits to lock it as `locking::lock` does. Creates it if `may_create`;
    /// `None` if it is missing.
    pub(super) fn open(
        directory: &Directory,
        key: &Key,
        may_create: bool,
        clock: &Clock,
        patience: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Self>, Error> {
        let Some(place) = directory.place(key, may_create)? else { return Ok(None) };
        let access = if may_create { OFlag::O_RDWR } else { OFlag::O_RDONLY };
        let (locked, status) = loop {
            if let Some(locked) = locking::lock(&place, access, patience, interrupt)? {
                break locked;
            }
            if !may_create {
                return if has_guard(&place)? { Err(damaged(&place)) } else { Ok(None) };
            }
            match place.folder.new_file(&place.state) {
                // The first process to lock the empty file writes the state.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::of(&place.path(&place.state), &error));
                }
                _ => {}
            }
        };
        Self::read(place, locked, status, may_create, clock)
    }

    /// Opens and locks the state for cleanup; `None` if another process has locked it.
    pub(super) fn open_idle(place: Place, clock: &Clock) -> Result<Option<Self>, Error> {
        let fail = |error: io::Error| Error::of(&place.path(&place.state), &error);
        match locking::lock_idle(&place.folder, &place.state).map_err(fail)? {
            // An empty file was left behind by a process that was killed.
            Some((locked, status)) => Self::read(place, locked, status, true, clock),
            None => Ok(None),
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
            // A new file, unless there is a guard: then its content was lost.
            "" if !has_guard && !may_create => return Ok(None),
            "" if !has_guard => {
                let new = Content::default();
                let begun = text_of(&new, &status).and_then(|text| locked.write_all(&text));
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
        let timeline = Timeline::read(dates, clock, &mut lock).ok_or_else(|| damaged(&place))?;
        Ok(Some(Self { place, _locked: locked, status, has_guard, timeline, lock, mail }))
    }

    /// The time for the lock, in milliseconds since the epoch.
    pub(super) fn now(&self) -> u64 {
        self.timeline.now()
    }

    /// The folder that the files are in.
    pub(super) fn folder(&self) -> &Arc<Folder> {
        &self.place.folder
    }

    /// Removes and returns the mailboxes of waiters that are gone.
    pub(super) fn take_orphaned_mail(&mut self) -> Vec<String> {
        let known: HashSet<&str> = self.lock.tokens().collect();
        let orphaned = self.mail.keys().filter(|token| !known.contains(token.as_str()));
        let orphaned: Vec<String> = orphaned.cloned().collect();
        orphaned.iter().filter_map(|token| self.mail.remove(token)).collect()
    }

    /// Replaces the state by the lock as it is now, in one step, and unlocks it.
    pub(super) fn write(mut self) -> Result<(), Error> {
        let state = self.place.path(&self.place.state);
        let fail = |error: io::Error| Error::of(&state, &error);
        // Make the guard first: a state without one is revoked, while a guard without a hold means
        // nothing.
        if self.lock.is_guarded() && !self.has_guard {
            make_guard(&self.place)?;
        }
        let dates = self.timeline.write(&mut self.lock);
        let content = Content { lock: self.lock, dates, mail: self.mail };
        let text = text_of(&content, &self.status).map_err(fail)?;
        draft::replace(&self.place, &self.status, &text).map_err(fail)
    }

    /// Removes the files of a lock if everything in it ended before `moment`, in milliseconds since
    /// the epoch. Otherwise writes the lock if this clock has seen a part of it for the first time.
    pub(super) fn remove_if_unused_since(self, moment: u64) -> Result<(), Error> {
        if !self.lock.is_unused_since(moment) {
            return if self.timeline.has_first_sight() { self.write() } else { Ok(()) };
        }
        let Place { folder, guard, state, .. } = &self.place;
        // Remove the guard first: a guard without a state means that the state was lost.
        let removed = if self.has_guard { folder.remove(guard) } else { Ok(()) };
        let removed = removed.and_then(|()| folder.remove(state));
        removed.map_err(|error| Error::of(&self.place.path(state), &error))
    }
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
    let made = made.and_then(|mut file| file.write_all(GUARD_TEXT.as_bytes()));
    made.map_err(|error| Error::of(&place.path(&place.guard), &error))
}

fn damaged(place: &Place) -> Error {
    let [state, guard] = [&place.state, &place.guard].map(|name| place.path(name));
    let fault = Fault::new(format!("{}: damaged lock file", state.display()));
    let remedy = format!("if the lock is not in use, remove it and {}", guard.display());
    Error::Unusable(fault.with_remedy(remedy))
}

/// The text of a state. The length of the file `before` is an estimate of its length.
fn text_of(content: &Content, before: &FileStat) -> io::Result<Vec<u8>> {
    let length = usize::try_from(before.st_size).unwrap_or(0);
    let mut text = Vec::with_capacity(length.saturating_add(1024));
    text.extend_from_slice(HEADER.as_bytes());
    serde_json::to_writer(&mut text, content)?;
    text.push(b'\n');
    Ok(text)
}
