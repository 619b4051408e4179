//! The store of a host that keeps locks itself: reads a lock, decides with the model, writes it,
//! and wakes the waiters that the change concerns. A `Place` does all but decide.

use std::collections::BTreeSet;
use std::time::Duration;

use super::blocking::pause;
use super::wire::Limit;
use super::{Filter, Force, Interrupt, NEVER, PATIENCE, Store, decided};
use crate::report::Diagnostic;
use crate::rules::model::Lock;
use crate::rules::waiter::pause_of_a_head;
use crate::rules::{
    Answer, Asked, Failure, Fence, Id, Instant, Key, Listing, Name, Outcome, Prefix, Release,
    Removal, Renewal, Request, State, Token, Ttl, View,
};

/// How long at most a request takes that does not wait for the lock, or that no signal interrupts: a
/// release is repeated, and a signal is heard in between.
const BRIEF: Duration = Duration::from_secs(1);

/// How often a waiter asks again that nothing wakes.
const POLL: Duration = Duration::from_millis(10);

/// What a lock is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access<'a> {
    Inspect,
    Change,
    /// To grant it to this token, or to queue it. Only this makes a lock that is not there yet.
    Ask(&'a Token),
}

/// Where a host keeps locks, which decides nothing.
pub(super) trait Place: Send {
    /// Reads a lock, lets `decide` change it at the present time, writes it, and sends its mail. No
    /// other client changes it in between; the limit bounds the wait for those. A lock that is not
    /// there is free.
    fn change<T>(
        &mut self,
        key: &Key,
        access: Access<'_>,
        limit: Limit<'_>,
        decide: impl FnOnce(&mut Lock, u64) -> T,
    ) -> Result<T, Failure>;

    /// Sleeps until mail arrives for the waiter of `Access::Ask`, or until it is time to ask again.
    /// Returns true if the mail says nothing but that the waiter is the head of the queue.
    fn sleep(&mut self, at_most: Duration, interrupt: Interrupt<'_>) -> Result<bool, Failure> {
        pause(at_most.min(POLL), interrupt).map(|()| false)
    }

    /// The keys of all locks, or of those that are found until this moment.
    fn keys(&self, until: Option<Instant>) -> Result<Vec<String>, Failure>;

    /// Fails if other clients may use another place.
    fn verify(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Removes what has not been used for long.
    fn clean_up(&mut self) {}

    /// Messages since the last call.
    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        Vec::new()
    }
}

/// The locks in a place. A change takes a fraction of a millisecond, so interrupts end only the
/// waits: for a grant, and for other clients that change the same lock first.
pub(super) struct CellStore<P> {
    place: P,
    /// How long other clients may change the same lock first.
    patience: Duration,
}

impl<P: Place> CellStore<P> {
    pub(super) fn new(place: P, io_timeout: Duration) -> Self {
        Self { place, patience: PATIENCE * io_timeout }
    }

    /// Within a brief time.
    fn briefly<'a>(&self, interrupt: Interrupt<'a>) -> Limit<'a> {
        Limit::of_attempt(self.patience.min(BRIEF), interrupt)
    }
}

impl<P: Place> Store for CellStore<P> {
    fn acquire(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<Answer, Failure> {
        let (key, access) = (&request.key, Access::Ask(&request.token));
        let waits = request.heartbeat.is_some();
        let patience = if waits { self.patience } else { self.patience.min(BRIEF) };
        decided(self.patience, |attempt| {
            let limit = Limit::of_attempt(patience, interrupt);
            let ask = |lock: &mut Lock, now| lock.at(now).acquire(request, attempt);
            self.place.change(key, access, limit, ask)
        })
    }

    fn sleep(
        &mut self,
        _request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Asked>, Failure> {
        let is_head = self.place.sleep(at_most, interrupt)?;
        if let Some(pause) = pause_of_a_head(is_head, at_most) {
            self.place.sleep(pause, interrupt)?;
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
        let limit = Limit::of_attempt(self.patience, interrupt);
        let renew = |lock: &mut Lock, now| lock.at(now).renew(token, ttl);
        Ok(match self.place.change(key, Access::Change, limit, renew)? {
            Renewal::NotHeld(why) => Renewal::NotHeld(why.in_files()),
            renewed @ Renewal::Renewed { .. } => renewed,
        })
    }

    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure> {
        let brief = self.briefly(NEVER);
        let release = |lock: &mut Lock, now| lock.at(now).release(token, outcome);
        let released = self.place.change(key, Access::Change, brief, release)?;
        self.place.clean_up();
        Ok(match released {
            Release::NotHeld(why) => Release::NotHeld(why.in_files()),
            released => released,
        })
    }

    fn withdraw(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<(), Failure> {
        let Request { key, token, ttl, is_skipped, .. } = request;
        let leave = |lock: &mut Lock, now| lock.at(now).leave(token, *ttl, *is_skipped);
        self.place.change(key, Access::Change, self.briefly(interrupt), leave)
    }

    fn withdraw_blind(&mut self, request: &Request) {
        // If another client still changes the lock, the request expires in it.
        let _ = self.withdraw(request, NEVER.or_at(Instant::now()));
    }

    fn revoke(&mut self, key: &Key, force: &Force) -> Result<View, Failure> {
        self.place.verify()?;
        // No grant can come in between.
        let revoke =
            |lock: &mut Lock, now| lock.at(now).revoke(Fence(u64::MAX), force.how, &force.by);
        self.place.change(key, Access::Change, self.briefly(NEVER), revoke)
    }

    fn remove(&mut self, key: &Key, id: &Id, force: &Force) -> Result<Removal, Failure> {
        self.place.verify()?;
        let remove = |lock: &mut Lock, now| lock.at(now).remove(id, force.how, &force.by);
        self.place.change(key, Access::Change, self.briefly(NEVER), remove)
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        let brief = self.briefly(NEVER);
        self.place.change(key, Access::Inspect, brief, |lock, now| lock.inspect(now))
    }

    fn inspect_verified(&mut self, key: &Key, _: bool) -> Result<View, Failure> {
        self.place.verify()?;
        self.inspect(key)
    }

    fn list(&mut self, filter: &Filter) -> Result<Listing, Failure> {
        self.place.verify()?;
        let names = names_in(self.place.keys(None)?, &filter.prefix);
        let names: BTreeSet<Name> = names.filter(|name| filter.passes(name)).collect();
        let mut listing = Listing::default();
        for name in names {
            let view = self.inspect(&Key::new(&filter.prefix, &name));
            if filter.with_free || view.as_ref().map_or(true, |view| view.state != State::Free) {
                listing.locks.push((name, view));
            }
        }
        Ok(listing)
    }

    fn names(&mut self, prefix: &Prefix, until: Instant) -> Vec<Name> {
        names_in(self.place.keys(Some(until)).unwrap_or_default(), prefix).collect()
    }

    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        self.place.diagnostics()
    }
}

/// The names of the locks with this prefix.
fn names_in(keys: Vec<String>, prefix: &Prefix) -> impl Iterator<Item = Name> {
    keys.into_iter().filter_map(|key| key.strip_prefix(prefix.as_str())?.parse().ok())
}
