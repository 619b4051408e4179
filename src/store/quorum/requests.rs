//! The store of a quorum: what each request asks of the members, and what follows from their votes.
//! `acquire` does this for the acquisition of a lock.

use std::time::Duration;

use super::Quorum;
use super::member::Member;
use super::member_store::MemberStore;
use super::posting::{FAREWELL, withdraw};
use crate::report::Diagnostic;
use crate::rules::FailureKind::{Unavailable, Unconfirmed};
use crate::rules::quorum::{
    ReleaseDecision, RenewalDecision, Votes, decide_release, decide_removal, decide_renewal,
    is_release_decided, is_renewal_decided, merge, merge_listings,
};
use crate::rules::{
    Answer, Asked, Failure, Id, Instant, Key, Listing, Name, Outcome, Prefix, Release, Removal,
    Renewal, Request, Token, Ttl, UserMessage, View,
};
use crate::store::{Filter, Force, Interrupt, NEVER, Store};

impl Store for Quorum {
    fn acquire(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<Answer, Failure> {
        self.has_written = true;
        self.attempt(request, interrupt)
    }

    fn sleep(
        &mut self,
        request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Asked>, Failure> {
        self.rest(request, at_most, interrupt).map(|()| None)
    }

    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Option<Ttl>,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure> {
        self.has_written = true;
        let (key, its_token) = (key.clone(), token.clone());
        // The process that acquired the lock renews it again soon, so a busy member can be skipped.
        // For `rlock renew` this is the only renewal. Only the process that acquired the lock can
        // restore a lost hold, so only it awaits members that could report a loss after the others
        // have decided.
        let can_restore = self.granted.is_some();
        let last = interrupt.last_renewal;
        // The last attempt follows what they are busy with.
        let is_last = last.is_some_and(|last| last.at <= Instant::now());
        let skipped = if can_restore && !is_last { self.busy() } else { Vec::new() };
        let mut votes = self.ask(
            &skipped,
            move |store| store.renew(&key, &its_token, ttl, NEVER.leaving_time_for(last)),
            (!can_restore).then_some(is_renewal_decided),
            |renewal| match renewal {
                Renewal::Renewed { fence, .. } => format!("renewed, fencing token {fence}"),
                Renewal::NotHeld(why) => format!("not held: the lock {why}"),
            },
            interrupt,
        )?;
        match decide_renewal(&votes) {
            RenewalDecision::Renewed { held: (fence, slot), left, before, lost } => {
                self.restore(token, ttl, &lost);
                Ok(Renewal::Renewed { fence, slot, left, before })
            }
            RenewalDecision::NotHeld(why) => Ok(Renewal::NotHeld(why)),
            RenewalDecision::TooFew { renewed, lost, left } => {
                // While the lease lasts, no other client can have a majority. The next attempt then
                // counts these.
                if renewed > 0 {
                    self.restore(token, ttl, &lost);
                }
                for number in lost {
                    let what = format!("{} has lost the hold", self.members[number].name());
                    votes.votes[number] =
                        Some(Err(Failure::new(Unavailable, UserMessage::new(what))));
                }
                Err(match (self.too_few(renewed, &votes), left) {
                    (failure, left @ Some(_)) if failure.kind == Unavailable => {
                        Failure { kind: Unconfirmed { left }, ..failure }
                    }
                    (failure, _) => failure,
                })
            }
        }
    }

    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure> {
        self.has_written = true;
        let (key, its_token) = (key.clone(), token.clone());
        // A frozen server can miss a release, which is large, but not a withdrawal. A withdrawal
        // would drop a hold that must be kept for its minimum time.
        let now = Instant::now();
        let granted = self.granted.as_ref().filter(|granted| granted.request.token == *token);
        let granted = granted
            .filter(|it| outcome == Outcome::NotStarted || it.request.at_least <= now.since(it.at));
        let withdrawn = granted.map(|granted| granted.request.clone());
        let (its_key, released) = (key.clone(), token.clone());
        let posted = self.post_if_busy(move |store| match withdrawn {
            Some(request) => store.withdraw_blind(&request),
            None => store.post_release(&its_key, &released, outcome),
        });
        let votes = self.ask(
            &posted,
            move |store| store.release(&key, &its_token, outcome),
            Some(is_release_decided),
            |release| match release {
                Release::Released => "released".into(),
                Release::NotHeld(why) => format!("not held: the lock {why}"),
                Release::Unknown => "already released, or not held".into(),
            },
            NEVER,
        )?;
        let before = self.maybe_released.take().is_some_and(|released| released == *token);
        match decide_release(&votes, before) {
            ReleaseDecision::Decided(release) => {
                self.granted = None;
                Ok(release)
            }
            ReleaseDecision::TooFew { answered, maybe_released } => {
                self.maybe_released = (maybe_released || !posted.is_empty()).then(|| token.clone());
                Err(self.too_few(answered, &votes))
            }
        }
    }

    fn withdraw(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<(), Failure> {
        self.has_written = true;
        self.granted = None;
        // Those that only listen for a message can be asked at once.
        self.members.iter().for_each(Member::interrupt);
        self.await_idle(FAREWELL, interrupt);
        let posted = self.post_if_busy(withdraw(request));
        let request = request.clone();
        let ask = move |store: &mut MemberStore| store.withdraw(&request, NEVER);
        let left = |(): &()| "request withdrawn".into();
        let votes = self.ask(&posted, ask, None, left, interrupt)?;
        self.check_majority(&votes)
    }

    fn withdraw_blind(&mut self, request: &Request) {
        self.granted = None;
        self.members.iter().for_each(|member| member.post(withdraw(request)));
    }

    fn revoke(&mut self, key: &Key, force: &Force) -> Result<View, Failure> {
        self.has_written = true;
        let (key, force) = (key.clone(), force.clone());
        let revoke = move |store: &mut MemberStore| store.revoke(&key, &force);
        let votes = self.ask_all(revoke, View::to_string)?;
        Ok(self.merged(votes))
    }

    fn remove(&mut self, key: &Key, id: &Id, force: &Force) -> Result<Removal, Failure> {
        self.has_written = true;
        let (key, id, force) = (key.clone(), id.clone(), force.clone());
        let remove = move |store: &mut MemberStore| store.remove(&key, &id, &force);
        let describe = |removal: &Removal| match removal {
            Removal::Revoked(holder, _) => format!("revoked {}", holder.client),
            Removal::Removed(waiter, _) => format!("removed {} from the queue", waiter.client),
            Removal::Unknown(view) | Removal::Several(view) => view.to_string(),
            Removal::Gone => "gone, probably removed before".into(),
        };
        Ok(decide_removal(&self.ask_all(remove, describe)?))
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        let key = key.clone();
        let inspect = move |store: &mut MemberStore| store.inspect(&key);
        let votes = self.ask_all(inspect, View::to_string)?;
        Ok(self.merged(votes))
    }

    fn list(&mut self, filter: &Filter) -> Result<Listing, Failure> {
        let (filter, with_free) = (filter.clone(), filter.with_free);
        let list = move |store: &mut MemberStore| {
            let mut listing = store.list(&filter)?;
            listing.failures.pop().map_or(Ok(listing.locks), Err)
        };
        let votes = self.ask_all(list, |locks| format!("locks: {}", locks.len()))?;
        Ok(merge_listings(votes.into_values().collect(), self.members.len(), with_free))
    }

    fn names(&mut self, prefix: &Prefix, until: Instant) -> Vec<Name> {
        let prefix = prefix.clone();
        let ask = move |store: &mut MemberStore| store.names(&prefix, until);
        let found = |names: &Vec<Name>| format!("names: {}", names.len());
        self.gathered(ask, found)
    }

    fn hazards(&mut self) -> Vec<String> {
        let ask = |store: &mut MemberStore| store.hazards();
        let asked = |_: &Vec<String>| "memory settings read".into();
        self.gathered(ask, asked)
    }

    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        if !self.has_reported_duplicate
            && let Some(fault) = self.duplicate()
        {
            self.has_reported_duplicate = true;
            let fault = fault.reworded(|what| format!("{what}, which has one vote"));
            self.diagnostics.push(Diagnostic::Warning(fault.to_string()));
        }
        std::mem::take(&mut self.diagnostics)
    }
}

impl Quorum {
    /// What all members that are not busy answer together.
    fn gathered<T: Send + 'static>(
        &mut self,
        request: impl Fn(&mut MemberStore) -> Vec<T> + Clone + Send + 'static,
        describe: impl Fn(&Vec<T>) -> String,
    ) -> Vec<T> {
        let request = move |store: &mut MemberStore| Ok(request(store));
        let votes = self.ask(&self.busy(), request, None, describe, NEVER);
        votes.map(|votes| votes.into_values().flatten().collect()).unwrap_or_default()
    }

    /// The lock as a majority sees it.
    fn merged(&self, votes: Votes<View>) -> View {
        merge(&votes.into_values().collect::<Vec<_>>(), self.members.len(), false)
    }
}
