//! Locks on one host without a server: each lock is a file under flock(2), which the lock model
//! reads and writes.

mod clock;
pub mod copies;
mod directory;
mod failure;
mod file;
mod folder;
pub(super) mod hazards;
mod locking;
mod mailbox;
mod names;
mod sweep;
mod temp_file;

use std::mem;
use std::time::Duration;

use clock::Clock;
pub use directory::Directory;
use file::LockFile;
use mailbox::Mailbox;

use super::Interrupt;
use super::blocking::answered;
use super::cell::{Access, Place};
use super::wire::Limit;
use crate::report::Diagnostic;
use crate::rules::model::{Lock, Mail};
use crate::rules::{Failure, Instant, Key};

/// A directory of lock files.
pub(super) struct LocalPlace {
    directory: Directory,
    /// The clock of this process, read on first use.
    clock: Option<Clock>,
    /// The mailbox of the request that is queued.
    mailbox: Option<Mailbox>,
    diagnostics: Vec<Diagnostic>,
}

impl LocalPlace {
    pub(super) fn new(directory: Directory) -> Self {
        Self { directory, clock: None, mailbox: None, diagnostics: Vec::new() }
    }

    fn clock(&mut self) -> Result<Clock, Failure> {
        if let Some(clock) = &self.clock {
            return Ok(clock.clone());
        }
        let clock = Clock::of_this_process().map_err(|it| failure::without_boot_id(&it))?;
        Ok(self.clock.insert(clock).clone())
    }

    /// Makes a mailbox for a request that is queued. Without one, drops that of an earlier attempt.
    fn keep_mailbox(&mut self, file: &LockFile, access: Access<'_>) -> Result<(), Failure> {
        let Access::Ask(token) = access else { return Ok(()) };
        let token = token.as_str();
        let is_queued = file.lock.queue.iter().any(|waiter| waiter.token == token);
        let folder = &file.paths.folder;
        self.mailbox.take_if(|mailbox| !is_queued || !mailbox.is_in(folder));
        if is_queued && self.mailbox.is_none() {
            let mailbox =
                Mailbox::open(folder, token).map_err(|error| self.directory.failure(&error))?;
            self.mailbox = Some(mailbox);
        }
        Ok(())
    }
}

impl Place for LocalPlace {
    fn change<T>(
        &mut self,
        key: &Key,
        access: Access<'_>,
        limit: Limit<'_>,
        decide: impl FnOnce(&mut Lock, u64) -> T,
    ) -> Result<T, Failure> {
        let clock = self.clock()?;
        // If the name of the directory is a mistake, other processes use another one, and nothing
        // else would show it.
        let is_new = matches!(access, Access::Ask(_)) && self.directory.is_chosen_but_missing();
        let Some(mut file) = LockFile::open(&self.directory, key, access, &clock, limit)? else {
            return Ok(decide(&mut Lock::default(), 0));
        };
        let now = file.now();
        let answer = decide(&mut file.lock, now);
        if access == Access::Inspect {
            return Ok(answer);
        }
        file.lock.forget_marks(now);
        // The mailbox must exist before another process can see the waiter.
        self.keep_mailbox(&file, access)?;
        let folder = file.paths.folder.clone();
        let woken = mem::take(&mut file.lock.mail);
        let gone = file.write()?;
        self.directory.note_served();
        // A waiter that was removed must learn of it.
        for Mail { token, message } in &woken {
            mailbox::wake(&folder, token, message);
        }
        // A waiter that was killed has left its mailbox.
        for token in &gone {
            mailbox::remove(&folder, token);
        }
        if is_new {
            let what = format!("created lock directory {}", self.directory.path().display());
            self.diagnostics.push(Diagnostic::Note(what));
        }
        Ok(answer)
    }

    fn sleep(&mut self, at_most: Duration, interrupt: Interrupt<'_>) -> Result<bool, Failure> {
        let Some(mailbox) = &self.mailbox else { return Ok(false) };
        answered(&mailbox.arrival(), interrupt, Instant::now() + at_most)?;
        Ok(mailbox.says_head())
    }

    fn keys(&self, until: Option<Instant>) -> Result<Vec<String>, Failure> {
        self.directory.keys(until)
    }

    fn verify(&self) -> Result<(), Failure> {
        self.directory.must_exist()
    }

    fn clean_up(&mut self) {
        if let Ok(clock) = self.clock() {
            sweep::once_a_day(&self.directory, &clock);
        }
    }

    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        mem::take(&mut self.diagnostics)
    }
}
