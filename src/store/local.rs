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

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
pub use directory::Directory;
use file::{Access, LockFile};
use folder::Folder;
use mailbox::Mailbox;

use super::blocking::{answered, pause_of_a_head};
use super::{Interrupt, PATIENCE, Store, decided};
use crate::report::Diagnostic;
use crate::rules::model::{Lock, Mail};
use crate::rules::{
    Answer, Asked, Failure, Fence, Id, Instant, Key, Listing, Name, Operator, Outcome, Pattern,
    Prefix, Release, Removal, Renewal, Request, Revocation, State, Token, Ttl, Verdict, View,
};

/// How often the I/O timeout a process waits for those that have locked the same file: enough for a
/// thousand of them.
const TURNS: u32 = 5;

/// How long at most if the request does not wait for the lock either, or if no signal interrupts it: a
/// release is repeated, and a signal is heard in between.
const BRIEF: Duration = Duration::from_secs(1);

/// A directory of lock files. A change to one takes a fraction of a millisecond, so interrupts end
/// only the waits: for a grant, and for the processes that change the same file first.
pub(super) struct Local {
    directory: Directory,
    io_timeout: Duration,
    /// The clock of this process, read on first use.
    clock: Option<Clock>,
    /// The mailbox of the request that is queued.
    mailbox: Option<Mailbox>,
    diagnostics: Vec<Diagnostic>,
}

impl Local {
    /// `TURNS` times `io_timeout` bounds the wait for the processes that have locked the same file.
    pub(super) fn new(directory: Directory, io_timeout: Duration) -> Self {
        Self { directory, io_timeout, clock: None, mailbox: None, diagnostics: Vec::new() }
    }

    fn clock(&mut self) -> Result<Clock, Failure> {
        if let Some(clock) = &self.clock {
            return Ok(clock.clone());
        }
        let clock = Clock::of_this_process().map_err(|it| failure::without_boot_id(&it))?;
        Ok(self.clock.insert(clock).clone())
    }

    fn open(
        &mut self,
        key: &Key,
        purpose: Access,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<LockFile>, Failure> {
        let clock = self.clock()?;
        let patience = self.io_timeout.saturating_mul(TURNS);
        LockFile::open(&self.directory, key, purpose, &clock, patience, interrupt)
    }

    /// Changes a lock, writes it, and wakes the waiters that the change concerns. A lock without a
    /// file is changed in memory only, unless `purpose` is to create it.
    fn change<T>(
        &mut self,
        key: &Key,
        purpose: Access,
        interrupt: Interrupt<'_>,
        act: impl FnOnce(&mut Lock, u64) -> T,
        keep_mail: impl FnOnce(&mut Self, &Arc<Folder>, &T) -> Result<(), Failure>,
    ) -> Result<T, Failure> {
        let Some(mut file) = self.open(key, purpose, interrupt)? else {
            // An unknown lock is free, and only a request, which creates it, can take it.
            return Ok(act(&mut Lock::default(), 0));
        };
        let now = file.now();
        let answer = act(&mut file.lock, now);
        file.lock.forget_marks(now);
        let folder = file.paths.folder.clone();
        // The mailbox must exist before another process can see the waiter.
        keep_mail(self, &folder, &answer)?;
        let woken = std::mem::take(&mut file.lock.mail);
        let gone = file.write()?;
        self.directory.serves();
        // A waiter that was removed must learn of it.
        for Mail { token, message } in &woken {
            mailbox::wake(&folder, token, message);
        }
        // A waiter that was killed has left its mailbox.
        for token in &gone {
            mailbox::remove(&folder, token);
        }
        Ok(answer)
    }

    /// Makes a mailbox for a request that is queued.
    fn keep_mailbox(
        &mut self,
        folder: &Arc<Folder>,
        token: &str,
        verdict: &Verdict,
    ) -> Result<(), Failure> {
        let is_queued = matches!(verdict, Verdict::Answer(Answer::Queued { .. }));
        if is_queued && self.mailbox.as_ref().is_none_or(|mailbox| !mailbox.is_in(folder)) {
            // The old one has the same name: drop it first.
            self.mailbox = None;
            let mailbox =
                Mailbox::open(folder, token).map_err(|error| self.directory.failure(&error))?;
            self.mailbox = Some(mailbox);
        }
        Ok(())
    }

    /// Changes a lock as `change` does, within a brief time.
    fn act<T>(
        &mut self,
        key: &Key,
        interrupt: Interrupt<'_>,
        act: impl FnOnce(&mut Lock, u64) -> T,
    ) -> Result<T, Failure> {
        self.change(key, Access::Change, briefly(interrupt), act, |_, _, _| Ok(()))
    }
}

/// The same interrupt, or the end of a brief time.
fn briefly(interrupt: Interrupt<'_>) -> Interrupt<'_> {
    Some(interrupt.unwrap_or_default().or_at(Some(Instant::now() + BRIEF)))
}

impl Store for Local {
    fn acquire(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<Answer, Failure> {
        let token = request.token.as_str();
        let waits = request.heartbeat.is_some();
        let interrupt = if waits { interrupt } else { briefly(interrupt) };
        // If the name of the directory is a mistake, other processes use another one, and nothing
        // else would show it.
        let is_new = self.directory.is_chosen_but_missing();
        let answer = decided(PATIENCE * self.io_timeout, |attempt| {
            self.change(
                &request.key,
                Access::Create,
                interrupt,
                |lock, now| lock.at(now).acquire(request, attempt),
                |this, folder, verdict| this.keep_mailbox(folder, token, verdict),
            )
        })?;
        if !matches!(answer, Answer::Queued { .. }) {
            self.mailbox = None;
        }
        if is_new {
            let what = format!("created lock directory {}", self.directory.path().display());
            self.diagnostics.push(Diagnostic::Note(what));
        }
        Ok(answer)
    }

    fn sleep(
        &mut self,
        _request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Asked>, Failure> {
        let Some(mailbox) = &self.mailbox else { return Ok(None) };
        let hear = |at_most| {
            answered(&mailbox.arrival(), interrupt, Instant::now() + at_most)?;
            Ok::<_, Failure>(mailbox.says_head())
        };
        if let Some(pause) = pause_of_a_head(hear(at_most)?, at_most) {
            hear(pause)?;
        }
        Ok(None)
    }

    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Option<Ttl>,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure> {
        let renew = |lock: &mut Lock, now| lock.at(now).renew(token, ttl);
        Ok(match self.change(key, Access::Change, interrupt, renew, |_, _, _| Ok(()))? {
            Renewal::NotHeld(why) => Renewal::NotHeld(why.in_files()),
            renewed @ Renewal::Renewed { .. } => renewed,
        })
    }

    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure> {
        let released = self.act(key, None, |lock, now| lock.at(now).release(token, outcome))?;
        let clock = self.clock()?;
        sweep::once_a_day(&self.directory, &clock);
        Ok(match released {
            Release::NotHeld(why) => Release::NotHeld(why.in_files()),
            released => released,
        })
    }

    fn leave(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<(), Failure> {
        self.mailbox = None;
        let Request { key, token, ttl, is_skipped, .. } = request;
        self.act(key, interrupt, |lock, now| lock.at(now).leave(token, *ttl, *is_skipped))
    }

    fn abandon(&mut self, request: &Request) {
        let io_timeout = std::mem::take(&mut self.io_timeout);
        // If another process still keeps the file locked, the request expires in it.
        let _ = self.leave(request, None);
        self.io_timeout = io_timeout;
    }

    fn revoke(&mut self, key: &Key, how: Revocation, by: &Operator) -> Result<View, Failure> {
        self.directory.must_exist()?;
        // No grant can come in between, because the file is locked.
        let all = Fence(u64::MAX);
        self.act(key, None, |lock, now| lock.at(now).revoke(all, how, by))
    }

    fn remove(
        &mut self,
        key: &Key,
        id: &Id,
        how: Revocation,
        by: &Operator,
    ) -> Result<Removal, Failure> {
        self.directory.must_exist()?;
        self.act(key, None, |lock, now| lock.at(now).remove(id, how, by))
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        let file = self.open(key, Access::Inspect, briefly(None))?;
        Ok(file.map_or_else(|| Lock::default().inspect(0), |file| file.inspect()))
    }

    fn list(
        &mut self,
        prefix: &Prefix,
        pattern: Option<&Pattern>,
        with_free: bool,
    ) -> Result<Listing, Failure> {
        self.directory.must_exist()?;
        let keys = self.directory.keys(None)?;
        let names: BTreeMap<Name, Key> = keys
            .iter()
            .filter_map(|key| key.strip_prefix(prefix.as_str())?.parse::<Name>().ok())
            .filter(|name| pattern.is_none_or(|pattern| pattern.matches(name.as_str())))
            .map(|name| (name.clone(), Key::new(prefix, &name)))
            .collect();
        let mut listing = Listing::default();
        for (name, key) in names {
            let view = self.inspect(&key);
            if with_free || view.as_ref().map_or(true, |view| view.state != State::Free) {
                listing.locks.push((name, view));
            }
        }
        Ok(listing)
    }

    fn names(&mut self, prefix: &Prefix, until: Instant) -> Vec<Name> {
        let keys = self.directory.keys(Some(until)).unwrap_or_default();
        keys.iter().filter_map(|key| key.strip_prefix(prefix.as_str())?.parse().ok()).collect()
    }

    fn verify(&mut self) -> Result<(), Failure> {
        self.directory.must_exist()
    }

    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        mem::take(&mut self.diagnostics)
    }
}
