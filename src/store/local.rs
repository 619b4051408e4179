//! Locks on one host without a server: the lock model on files, one a lock, under flock(2).

mod directory;
mod error;
mod file;
mod mailbox;
mod sweep;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

pub(crate) use directory::Directory;
use error::Error;
use file::LockFile;
use mailbox::Mailbox;

use super::model::Lock;
use super::{
    Answer, Eviction, Failure, Fate, Interrupt, Listing, Release, Renewal, Request, Seen, Store,
};
use crate::clock::Instant;
use crate::duration::{Ttl, show};
use crate::lock::{Key, Name, Prefix, Token};
use crate::pattern::Pattern;
use crate::poll::{Want, ready};
use crate::progress::Progress;
use crate::view::{Outcome, State, View};

/// A directory of lock files. What is done to one takes a fraction of a millisecond, so there is
/// nothing to interrupt but the sleep in the queue.
pub(super) struct Local {
    directory: Directory,
    io_timeout: Duration,
    /// Of the request that is in the queue.
    mailbox: Option<Mailbox>,
}

impl Local {
    pub(super) fn new(directory: Directory, io_timeout: Duration) -> Self {
        Self { directory, io_timeout, mailbox: None }
    }

    /// Does something to a lock and keeps the result. Whom it concerns among the waiters is woken.
    fn change<T>(
        &mut self,
        key: &Key,
        may_create: bool,
        act: impl FnOnce(&mut Lock, u64) -> T,
        keep_mail: impl FnOnce(&mut Self, &T) -> Result<(), Failure>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + self.io_timeout;
        let mut file = match LockFile::open(&self.directory, key, may_create, until) {
            Ok(Some(file)) => file,
            // Nothing is known of it, so nothing can come of it but the answer.
            Ok(None) => return Ok(act(&mut Lock::default(), 0)),
            Err(error) => return Err(self.failure(error)),
        };
        let before: Vec<String> = file.lock.tokens().map(str::to_owned).collect();
        let now = file.now();
        let answer = act(&mut file.lock, now);
        // Before anybody can know that there is somebody to be woken.
        keep_mail(self, &answer)?;
        let woken = file.lock.take_woken();
        // Those who are gone may have died without removing it.
        let after: HashSet<&str> = file.lock.tokens().collect();
        for token in before.iter().filter(|token| !after.contains(token.as_str())) {
            Mailbox::remove(&self.directory, token);
        }
        file.write().map_err(|error| self.failure(error))?;
        for token in &woken {
            Mailbox::wake(&self.directory, token);
        }
        Ok(answer)
    }

    fn act<T>(&mut self, key: &Key, act: impl FnOnce(&mut Lock, u64) -> T) -> Result<T, Failure> {
        self.change(key, false, act, |_, _| Ok(()))
    }

    fn failure(&self, error: Error) -> Failure {
        match error {
            Error::Busy => Failure::Unreachable {
                what: format!(
                    "another process works on the lock's file for more than {}; is it stopped?",
                    show(self.io_timeout)
                ),
                fate: Fate::NotSent,
            },
            Error::Full(what) => Failure::Unavailable(what),
            Error::Unusable(what) => Failure::Misconfigured { what, executed: false },
        }
    }
}

impl Store for Local {
    fn acquire(
        &mut self,
        request: &Request,
        seen: &[Seen],
        _interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        let answer = self.change(
            &request.key,
            true,
            |lock, now| lock.acquire(request, seen, now),
            |this, answer| {
                if matches!(answer, Answer::Queued { .. }) && this.mailbox.is_none() {
                    let mailbox = Mailbox::open(&this.directory, request.token.as_str());
                    this.mailbox = Some(mailbox.map_err(|error| this.failure(error))?);
                }
                Ok(())
            },
        )?;
        if !matches!(answer, Answer::Queued { .. }) {
            self.mailbox = None;
        }
        sweep::once_a_day(&self.directory);
        Ok(answer)
    }

    fn sleep(
        &mut self,
        _request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Failure> {
        let until = Some(Instant::now() + at_most);
        let Some(mailbox) = &self.mailbox else { return Ok(()) };
        let interrupted = match interrupt {
            Some(interrupt) => {
                ready([(mailbox.arrival(), Want::Read), (interrupt, Want::Read)], until)
                    .map(|[_, interrupted]| interrupted)
            }
            None => ready([(mailbox.arrival(), Want::Read)], until).map(|_| false),
        };
        mailbox.empty();
        match interrupted {
            Ok(false) => Ok(()),
            Ok(true) => Err(Failure::Interrupted { sent: true }),
            Err(error) => Err(Failure::Unavailable(format!("cannot wait: {error}"))),
        }
    }

    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Ttl,
        _interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure> {
        self.act(key, |lock, now| lock.renew(token, ttl, now))
    }

    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure> {
        self.act(key, |lock, now| lock.release(token, outcome, now))
    }

    fn leave(&mut self, request: &Request) -> Result<View, Failure> {
        self.mailbox = None;
        self.act(&request.key, |lock, now| lock.leave(&request.token, now))
    }

    fn revoke(&mut self, key: &Key, eviction: Eviction, by: &str) -> Result<View, Failure> {
        self.act(key, |lock, now| lock.revoke(eviction, by, now))
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        let until = Instant::now() + self.io_timeout;
        match LockFile::open(&self.directory, key, false, until) {
            Ok(Some(file)) => Ok(file.lock.inspect(file.now())),
            Ok(None) => Ok(Lock::default().inspect(0)),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn list(
        &mut self,
        prefix: &Prefix,
        pattern: Option<&Pattern>,
        _progress: &Progress,
    ) -> Result<Listing, Failure> {
        let keys = self.directory.keys().map_err(|error| self.failure(error))?;
        let names: BTreeMap<Name, Key> = keys
            .iter()
            .filter_map(|key| key.strip_prefix(prefix.as_str())?.parse::<Name>().ok())
            .filter(|name| pattern.is_none_or(|pattern| pattern.matches(name)))
            .map(|name| (name.clone(), Key::new(prefix, &name)))
            .collect();
        let mut listing = Listing::default();
        for (name, key) in names {
            let view = self.inspect(&key);
            if view.as_ref().map_or(true, |view| view.state != State::Free) {
                listing.locks.push((name, view));
            }
        }
        Ok(listing)
    }
}
