//! The files of one lock, locked by this process.
//!
//! A lock has two files. The state is hidden and contains everything. The guard is visible, and
//! only its existence counts: deleting the guard of a held lock revokes the holds, like deleting
//! the key on a server. The state still has the holders, so the lock stays taken until they have
//! released it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::iter::once;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{Flock, OFlag};
use nix::sys::stat::FileStat;
use serde::{Deserialize, Serialize};

use super::clock::{Clock, Dates, Timeline};
use super::copies::{self, Room, State};
use super::details::{StoredDetails, read_at};
use super::directory::{Directory, Place};
use super::error::Error;
use super::folder::{Folder, is_file, not_a_file};
use super::{draft, locking};
use crate::rules::fault::Fault;
use crate::rules::lock::Key;
use crate::rules::lock::view::View;
use crate::rules::model::Lock;
use crate::rules::model::lock::{Layout, Queue};
use crate::system::poll::Interrupt;

/// The content of a guard, for users who open it.
const GUARD_TEXT: &str = "This is an rlock lock. Deleting this file revokes the lock.\n";

/// The state of a lock. Its file stays locked until this is dropped.
pub(super) struct LockFile {
    place: Place,
    locked: Rc<Flock<File>>,
    status: FileStat,
    /// The details of the waiters; `None` if the file is new.
    details: Option<Rc<StoredDetails>>,
    /// Where in the file the next state goes; `None` if it needs a new file.
    next: Option<Room>,
    has_guard: bool,
    timeline: Timeline,
    pub(super) lock: Lock,
    /// The mailbox names of waiters that were granted the lock but have not claimed it, by token.
    mail: BTreeMap<String, String>,
}

/// What a state is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Only to read it.
    Inspect,
    Change,
    /// To change it, and to create it if it is missing.
    Create,
}

/// The first line of a copy. The index of the waiters follows it.
#[derive(Default, Serialize, Deserialize)]
struct Content {
    lock: Lock,
    dates: Dates,
    mail: BTreeMap<String, String>,
}

impl Content {
    /// Parses the content of a copy; `None` if rlock did not write it.
    fn parse(copy: Vec<u8>, details: Rc<StoredDetails>) -> Option<Self> {
        let text = String::from_utf8(copy).ok()?;
        let (first, _) = text.split_once('\n')?;
        let mut content: Self = serde_json::from_str(first).ok()?;
        let index = first.len() + 1;
        content.lock.queue = Queue::read(text, index, details)?;
        Some(content)
    }

    /// The state to write to this room of a file; `None` if it does not fit.
    fn in_place(&self, room: Room) -> io::Result<Option<State<'_>>> {
        let Some(layout) = self.lock.queue.changes(room.details().len())? else { return Ok(None) };
        Ok(Some(self.state(layout)?).filter(|state| room.fits(state)))
    }

    /// The state to write to a new file.
    fn whole(&self) -> io::Result<State<'_>> {
        self.state(self.lock.queue.whole()?)
    }

    fn state<'a>(&self, queue: Layout<'a>) -> io::Result<State<'a>> {
        let mut first = serde_json::to_vec(self)?;
        first.push(b'\n');
        let room = queue.room();
        let Layout { index, details, .. } = queue;
        let copy = once(first.into()).chain(index).collect();
        Ok(State { copy, details, room })
    }
}

impl LockFile {
    /// Opens the state, and waits to lock it as `locking::lock` does; `None` if it is missing and
    /// not to be created.
    pub(super) fn open(
        directory: &Directory,
        key: &Key,
        purpose: Purpose,
        clock: &Clock,
        patience: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Self>, Error> {
        let may_create = purpose == Purpose::Create;
        let Some(place) = directory.place(key, may_create)? else { return Ok(None) };
        let is_inspected = purpose == Purpose::Inspect;
        let access = if is_inspected { OFlag::O_RDONLY } else { OFlag::O_RDWR };
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
            Some((locked, status)) => Self::read(place, locked, status, false, clock),
            None => Ok(None),
        }
    }

    fn read(
        place: Place,
        locked: Flock<File>,
        status: FileStat,
        may_create: bool,
        clock: &Clock,
    ) -> Result<Option<Self>, Error> {
        let locked = Rc::new(locked);
        let fail = |error: io::Error| Error::of(&place.path(&place.state), &error);
        let has_guard = has_guard(&place)?;
        let size = locked.metadata().map_err(fail)?.len();
        if size > copies::LARGEST {
            return Err(unusable(&place, "lock file exceeds 64 MiB"));
        }
        let part = |offset, length| read_at(&locked, offset, length);
        let size = usize::try_from(size).unwrap_or(0);
        let mut details = None;
        let (content, next) = match copies::newest(size, part).map_err(fail)? {
            Some((copy, next)) => {
                let stored = StoredDetails::new(locked.clone(), next.details());
                let stored = details.insert(Rc::new(stored)).clone();
                (Content::parse(copy, stored).ok_or_else(|| damaged(&place))?, Some(next))
            }
            // If there is a guard, the content was lost.
            None if has_guard || !is_blank(&locked).map_err(fail)? => return Err(damaged(&place)),
            None if !may_create => return Ok(None),
            None => {
                // A guard, which the first change makes, needs a state.
                let new = Content::default();
                if let Err(error) = new.whole().and_then(|state| draft::fill(&locked, &state)) {
                    let _ = place.folder.remove(&place.state);
                    return Err(fail(error));
                }
                (new, None)
            }
        };
        let Content { mut lock, dates, mail } = content;
        if !has_guard {
            lock.lose_guard();
        }
        let timeline = Timeline::read(dates, clock, &mut lock).ok_or_else(|| damaged(&place))?;
        Ok(Some(Self { place, locked, status, details, next, has_guard, timeline, lock, mail }))
    }

    /// The time for the lock, in milliseconds since the epoch.
    pub(super) fn now(&self) -> u64 {
        self.timeline.now()
    }

    /// The folder that the files are in.
    pub(super) fn folder(&self) -> &Arc<Folder> {
        &self.place.folder
    }

    /// Records the mailbox of a waiter; `None` if it has claimed the lock, or is not waiting. The
    /// mailbox name does not contain the token, because other users may list the directory.
    pub(super) fn set_mailbox(&mut self, token: &str, mailbox: Option<&str>) {
        self.mail.remove(token);
        if let Some(mailbox) = mailbox
            && let Some(waiter) = self.lock.queue.find_mut(token)
        {
            mailbox.clone_into(&mut waiter.mailbox);
        }
    }

    /// The mailbox of a waiter, or of a former waiter that has not claimed its grant yet.
    pub(super) fn mailbox(&self, token: &str) -> Option<&str> {
        let waiting = || Some(&self.lock.queue.find(token)?.mailbox);
        self.mail.get(token).or_else(waiting).map(String::as_str)
    }

    /// Remembers the mailboxes of waiters that have left the queue.
    pub(super) fn remember_mail(&mut self) {
        let queue = &self.lock.queue;
        let left = queue.replaced().filter(|waiter| queue.position(&waiter.token).is_none());
        self.mail.extend(left.map(|waiter| (waiter.token, waiter.mailbox)));
    }

    /// Removes and returns the mailboxes of waiters that are gone.
    pub(super) fn take_orphaned_mail(&mut self) -> Vec<String> {
        let mail = mem::take(&mut self.mail).into_iter();
        let (known, orphaned): (_, BTreeMap<_, _>) =
            mail.partition(|(token, _)| self.lock.knows(token));
        self.mail = known;
        orphaned.into_values().collect()
    }

    /// The lock as users see it.
    pub(super) fn inspect(&self) -> Result<View, Error> {
        let view = self.lock.inspect(self.now());
        self.check_reads().map(|()| view)
    }

    /// Fails if details of waiters could not be read.
    fn check_reads(&self) -> Result<(), Error> {
        let read = self.details.as_ref().map_or(Ok(()), |details| details.check());
        read.map_err(|error| Error::of(&self.place.path(&self.place.state), &error))
    }

    /// Writes the lock as the new state, in one step, and unlocks the file.
    pub(super) fn write(self) -> Result<(), Error> {
        let Self { place, locked, status, details, next, has_guard, timeline, mut lock, mail } =
            self;
        // Make the guard first: a state without one is revoked, while a guard without a hold means
        // nothing.
        if lock.is_guarded() && !has_guard {
            make_guard(&place)?;
        }
        let dates = timeline.write(&mut lock);
        let content = Content { lock, dates, mail };
        let check = || details.as_ref().map_or(Ok(()), |details| details.check());
        let write = || {
            let in_place = match next {
                Some(room) => content.in_place(room)?.map(|state| (room, state)),
                None => None,
            };
            // A new file also gets the mode that a directory shared since then requires.
            if let Some((room, state)) = &in_place
                && room.suits(state)
                && place.folder.has_mode(&status)
            {
                return check().and_then(|()| room.write(&locked, state));
            }
            let state = content.whole()?;
            check()?;
            match (draft::replace(&place, &status, &state), &in_place) {
                // The old file still has room for the state. Without this, a holder that others no
                // longer wait for could not renew on a full disk.
                (Err(_), Some((room, state))) => room.write(&locked, state),
                (replaced, _) => replaced,
            }
        };
        write().map_err(|error| Error::of(&place.path(&place.state), &error))
    }

    /// Removes the files of a lock if everything in it ended before `moment`, in milliseconds since
    /// the epoch. Otherwise writes the lock if this clock has seen a part of it for the first time.
    pub(super) fn remove_if_unused_since(self, moment: u64) -> Result<(), Error> {
        let is_unused = self.lock.is_unused_since(moment);
        self.check_reads()?;
        if !is_unused {
            return if self.timeline.has_first_sight() { self.write() } else { Ok(()) };
        }
        let Place { folder, guard, state, .. } = &self.place;
        // Remove the guard first: a guard without a state means that the state was lost.
        let removed = if self.has_guard { folder.remove(guard) } else { Ok(()) };
        let removed = removed.and_then(|()| folder.remove(state));
        removed.map_err(|error| Error::of(&self.place.path(state), &error))
    }
}

/// Whether a state file is new: empty, or already at its full length but all zeros.
fn is_blank(mut state: &File) -> io::Result<bool> {
    let mut bytes = Vec::new();
    state.read_to_end(&mut bytes)?;
    Ok(bytes.iter().all(|&byte| byte == 0))
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
    unusable(place, "damaged lock file")
}

fn unusable(place: &Place, why: &str) -> Error {
    let [state, guard] = [&place.state, &place.guard].map(|name| place.path(name));
    let fault = Fault::new(format!("{}: {why}", state.display()));
    let remedy = format!("if the lock is not in use, remove it and {}", guard.display());
    Error::Unusable(fault.with_remedy(remedy))
}
