//! Asking for the lock: what `acquire` and the requests to one of several servers have in common.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use super::lock::{CLAIM_WINDOW, Ended, Newest, Origin, QueueEntry, Revoked};
use super::transaction::Transaction;
use crate::rules::{
    Answer, Ending, Fence, Mode, Outcome, Request, ServerTime, Slot, Verdict, millis,
};

impl Transaction<'_> {
    pub(super) fn busy(&self) -> Verdict {
        Verdict::Answer(Answer::Busy(self.brief_view()))
    }

    /// Whether the request is a duplicate, or was overtaken by a later one.
    pub(super) fn is_copy(&self, token: &str, attempt: u64) -> bool {
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        let last = hold.map(|hold| hold.attempt).or(self.waiter(token).map(|it| it.attempt));
        last.is_some_and(|last| attempt <= last)
    }

    /// After `reconcile`: ends a request that is over, and a copy of one that holds the lock.
    pub(super) fn early_reply(&mut self, token: &str, attempt: u64) -> ControlFlow<Verdict> {
        if self.has_tombstone(token) {
            let over = || Answer::Ended(self.why_not_held(token));
            return Break(Verdict::Answer(self.how_ended(token).unwrap_or_else(over)));
        }
        if self.cleanup_pending {
            return Break(Verdict::Again);
        }
        // The hold was revoked before the client learned of it: report the removal.
        if let Some(hold) = self.unexpired_hold(token)
            && let Some(Revoked { by, .. }) = hold.revoked.clone()
        {
            let (ending, unknown) = (Ending::Released, Outcome::Unknown);
            let entry = self.history_entry(hold, ending, self.now, unknown, None);
            self.remove_waiter(token, token, Ended::Removed(by.clone()));
            self.admit(token);
            self.record(entry);
            return Break(Verdict::Answer(Answer::Removed(by)));
        }
        // An unclaimed grant expires sooner than the caller would assume.
        let claimed = self.valid_hold(token).filter(|hold| hold.renewed.is_some());
        if claimed.is_some() && self.is_copy(token, attempt) {
            return Break(self.granted(token));
        }
        Continue(())
    }

    /// Ends a request if the last fence, or another number that it relies on, is implausible.
    pub(super) fn check_ahead(&self, furthest: u64) -> ControlFlow<Verdict> {
        if self.is_ahead(furthest) {
            let ahead = Duration::from_millis(furthest.saturating_sub(self.micros()) / 1_000);
            return Break(Verdict::AheadOfClock { ahead, now: ServerTime(self.now) });
        }
        Continue(())
    }

    /// A number that is not behind the clock, and larger than the newest arrival: an arrival on the
    /// only server, and a ticket that one of several proposes, because it may become an arrival.
    pub(super) fn number_by_clock(&self) -> u64 {
        let newest = self.lock.newest.as_ref().map_or(0, |newest| newest.arrival);
        self.micros().max(newest + 1)
    }

    /// Of the waiting requests that supersede, only the newest remains: that with the largest
    /// arrival. On one of several servers, the ticket on which they agreed is the arrival. A waiting
    /// request has none (0) before its first reply, so one that was withdrawn sooner cancels
    /// nothing. Ends the request if there is a newer one.
    pub(super) fn supersede(&mut self, request: &Request, arrival: u64) -> ControlFlow<Verdict> {
        let token = request.token.as_str();
        let newest = self.lock.newest.clone();
        if !request.supersedes
            || arrival == 0
            || self.valid_hold(token).is_some()
            || self.enclosing_hold(&request.enclosing).0.is_some()
            || newest.as_ref().is_some_and(|newest| newest.token == token)
        {
            return Continue(());
        }
        if let Some(newest) = newest {
            if (newest.arrival, newest.token.as_str()) > (arrival, token) {
                self.remove_waiter(token, token, Ended::Superseded(newest.client.clone()));
                self.admit(token);
                return Break(Verdict::Answer(Answer::Superseded(newest.client)));
            }
            if self.waiter(&newest.token).is_some() {
                let ended = Ended::Superseded(request.client.clone());
                self.remove_waiter(&newest.token, token, ended);
            }
        }
        let (token, client) = (token.to_owned(), request.client.clone());
        self.lock.newest = Some(Newest { arrival, token, client });
        Continue(())
    }

    /// The verdict for a caller that already holds the lock.
    pub(super) fn hold_again(&mut self, request: &Request, attempt: u64) -> Verdict {
        let (token, at_least) = (request.token.as_str(), millis(request.at_least));
        if let Some(hold) = self.hold_mut(token) {
            hold.attempt = attempt;
            if at_least > 0 {
                hold.keep_until = hold.acquired + at_least;
            }
        }
        self.extend(token, request.ttl.as_millis(), 0);
        self.granted(token)
    }

    /// The request as a waiter with its owner, and whether it may enter a hold of that owner. Ends
    /// one that an enclosing hold keeps out.
    pub(super) fn find_owner(
        &self,
        request: &Request,
        attempt: u64,
    ) -> ControlFlow<Verdict, (QueueEntry, bool)> {
        let (enclosing, entry_mode) = self.enclosing_hold(&request.enclosing);
        let (owner, entry_mode) = match (&request.owner, enclosing) {
            (Some(owner), _) => (Some(owner), self.owner_mode(owner)),
            (None, Some(hold)) => (hold.owner.as_ref(), entry_mode),
            (None, None) => (None, None),
        };
        let entry_mode = entry_mode.filter(|_| request.reentrant);
        if (entry_mode, request.mode) == (Some(Mode::Shared), Mode::Exclusive) {
            return Break(Verdict::Answer(Answer::Upgrade));
        }
        if enclosing.is_some() && entry_mode.is_none() {
            return Break(Verdict::Answer(Answer::Nested));
        }
        let token = request.token.as_str();
        let waiter = QueueEntry {
            token: token.to_owned(),
            owner: Some(owner.unwrap_or(&request.fresh_owner).clone()),
            mode: request.mode,
            client: request.client.clone(),
            since: self.waiter(token).map_or(self.now, |waiter| waiter.since),
            // Presumed alive for two heartbeats and a claim window, because one heartbeat may get
            // lost.
            alive: self.now + 2 * request.heartbeat.map_or(0, millis) + CLAIM_WINDOW,
            reentrant: request.reentrant,
            ttl: request.ttl.as_millis(),
            attempt,
            next: request.next,
            ..QueueEntry::default()
        };
        Continue((waiter, entry_mode.is_some()))
    }

    /// Grants the lock to the caller. `fence` and `slot` are as for `grant`.
    pub(super) fn take(
        &mut self,
        request: &Request,
        waiter: QueueEntry,
        fence: Option<u64>,
        slot: Option<Slot>,
    ) -> Verdict {
        self.begin_generation(request);
        self.dequeue(&waiter.token);
        let (now, at_least) = (self.now, millis(request.at_least));
        let keep_until = if at_least > 0 { now + at_least } else { 0 };
        let deadline = now + waiter.ttl.max(at_least);
        self.grant(waiter, Some(now), deadline, keep_until, fence, slot);
        self.granted(request.token.as_str())
    }

    /// Puts a waiter at the end of the queue, or of those with --next, or leaves it where it is.
    /// `agreed` is `None` on the only server, which counts tickets. On one of several, it is the
    /// ticket on which they agreed, or 0 before that: then this server proposes one. Returns its
    /// position, from 1, and its ticket.
    pub(super) fn enqueue(
        &mut self,
        request: &Request,
        mut waiter: QueueEntry,
        agreed: Option<u64>,
    ) -> (u64, u64) {
        self.begin_generation(request);
        if let Some(ticket) = agreed {
            waiter.origin = if ticket > 0 { Origin::Agreed } else { Origin::Proposed };
        }
        let queued = self.dequeue(&waiter.token);
        let restates = agreed.is_some_and(|ticket| ticket > 0);
        if let Some(queued) = &queued {
            (waiter.since, waiter.ticket) = (queued.since, queued.ticket);
            waiter.next = if restates { waiter.next } else { queued.next };
        }
        if queued.is_none() || restates {
            let last = self.lock.ticket;
            waiter.ticket = match agreed {
                Some(0) => self.number_by_clock().max(last + 1),
                Some(ticket) => ticket,
                None => last + 1,
            };
            self.lock.ticket = last.max(waiter.ticket);
        }
        let ticket = waiter.ticket;
        let index = self.lock.queue.partition_point(|other| other.order() < waiter.order());
        self.lock.queue.insert(index, waiter);
        (index as u64 + 1, ticket)
    }

    /// A lock without a generation gets one, as random as the fresh owner.
    fn begin_generation(&mut self, request: &Request) {
        if self.lock.generation.is_empty() {
            let fresh = request.fresh_owner.as_str();
            let generation = fresh.get(fresh.len().saturating_sub(12)..).unwrap_or(fresh);
            generation.clone_into(&mut self.lock.generation);
        }
    }

    /// The verdict for a caller that holds the lock.
    fn granted(&self, token: &str) -> Verdict {
        let hold = self.unexpired_hold(token);
        hold.map_or(Verdict::Again, |hold| {
            Verdict::Answer(Answer::Granted { fence: Fence(hold.fence), slot: hold.slot })
        })
    }
}
