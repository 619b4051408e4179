//! Requests the lock, for the first time or again.

use std::time::Duration;

use crate::rules::model::lock::{CLAIM_WINDOW, Hold, Newest, Origin, Revoked, Waiter};
use crate::rules::model::transaction::Transaction;
use crate::rules::{
    Answer, ClientInfo, Ending, Fence, HoldState, Mode, Operator, Outcome, Proposal, Request, Seen,
    ServerTime, Slot, Ticket, Verdict, millis,
};

impl Transaction<'_> {
    /// Requests the lock, for the first time or again: `attempt` grows each time.
    pub fn acquire(&mut self, request: &Request, attempt: u64, seen: &[Seen]) -> Verdict {
        let token = request.token.as_str();
        let ((Fence(wanted), slot), ticket) = request.wanted();
        self.reconcile();
        if self.has_tombstone(token) {
            let over = || Answer::Ended(self.why_not_held(token));
            return Verdict::Answer(self.how_ended(token).unwrap_or_else(over));
        }
        if self.cleanup_pending {
            return Verdict::Again;
        }
        // The hold was revoked before the client learned of it: report the removal.
        if let Some(hold) = self.unexpired_hold(token)
            && let Some(Revoked { by, .. }) = hold.revoked.clone()
        {
            let (ending, unknown) = (Ending::Released, Outcome::Unknown);
            let entry = self.history_entry(hold, ending, self.now, unknown, None);
            self.remove_waiter(token, token, "removed", &by);
            self.admit(token);
            self.record(entry);
            return Verdict::Answer(Answer::Removed(Operator::from_line(&by)));
        }
        let is_copy = self.last_attempt(token).is_some_and(|last| attempt <= last);
        if is_copy {
            // An unclaimed grant expires sooner than the caller would assume.
            return match self.valid_hold(token).filter(|hold| hold.renewed.is_some()) {
                Some(Hold { fence, slot, .. }) => granted(*fence, *slot),
                None if ticket.is_none() => Verdict::Again,
                // Two URLs of a quorum may lead to the same server. Another attempt would undo what
                // the later request has done.
                None => Verdict::Answer(Answer::Busy(self.brief_view())),
            };
        }
        let tickets = ticket.map_or(0, |ticket| ticket.max(self.lock.ticket));
        let furthest = self.lock.fence.max(wanted).max(tickets);
        if self.is_ahead(furthest) {
            let ahead = Duration::from_millis(self.millis_ahead(furthest));
            return Verdict::FenceAhead { ahead, now: ServerTime(self.now) };
        }
        // One of several servers is asked for a hold that was revoked here meanwhile, or that ended
        // before its lease expired. It must not grant that hold again.
        if wanted > 0 && self.valid_hold(token).is_none() {
            let recorded = self.recorded(token);
            let ended = recorded.is_some_and(|entry| entry.ending != Ending::Expired);
            if self.unexpired_hold(token).is_some() || ended {
                return Verdict::Answer(Answer::Busy(self.brief_view()));
            }
        }
        // A caller that asks again no longer relies on its revoked hold, nor on one that too few
        // servers granted: then it has a ticket, or asks for another slot.
        let gives_up = ticket.is_some_and(|ticket| ticket > 0) && wanted == 0;
        if let Some(hold) = self.unexpired_hold(token)
            && (gives_up
                || slot.is_some() && hold.slot != slot
                || self.hold_state(hold) == HoldState::Revoked)
        {
            self.drop_hold(token);
        }
        for Seen { holder, left, generation } in seen {
            let forgotten = *generation != self.lock.generation || holder.fence.0 > self.lock.fence;
            if !generation.is_empty() && !self.foreign() && forgotten {
                self.reinstate(holder, millis(*left));
            }
        }
        if request.supersedes
            && self.valid_hold(token).is_none()
            && self.enclosing_hold(&request.enclosing).0.is_none()
        {
            let own = request.arrival.filter(|_| wanted == 0).map_or(0, |ticket| ticket.0);
            let arrival = ticket.unwrap_or(own);
            let newer = if arrival > 0 { self.supersede(request, arrival) } else { None };
            if let Some(newer) = newer {
                return Verdict::Answer(Answer::Superseded(newer));
            }
        }
        let (head, nominated) = if ticket.is_some() { (None, 0) } else { self.admit(token) };
        if self.cleanup_pending {
            return Verdict::Again;
        }
        // One of several servers is asked for a slot that another token has here.
        if self.valid_hold(token).is_none() && self.is_taken(slot) {
            return Verdict::Answer(Answer::Busy(self.brief_view()));
        }
        if let Some(own) = self.valid_hold(token).map(|hold| hold.fence) {
            return self.hold_again(request, attempt, own, wanted);
        }
        self.decide(request, attempt, head.as_ref(), nominated)
    }

    /// The attempt of the last request with this token.
    fn last_attempt(&self, token: &str) -> Option<u64> {
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        let waiter = self.waiter(token);
        hold.map(|hold| hold.attempt).or(waiter.map(|waiter| waiter.attempt))
    }

    /// Of the waiting requests that supersede, only the newest remains: that with the largest
    /// ticket. The first call of a request has no ticket yet, so one that was given up before its
    /// first reply cancels nothing. On several servers, only agreed tickets count. Returns the
    /// client of a newer one.
    fn supersede(&mut self, request: &Request, arrival: u64) -> Option<ClientInfo> {
        let token = request.token.as_str();
        let newest = self.lock.newest.clone();
        if newest.as_ref().is_some_and(|newest| newest.token == token) {
            return None;
        }
        if let Some(newest) = newest {
            let is_older = (newest.ticket, newest.token.as_str()) > (arrival, token);
            if is_older {
                self.remove_waiter(token, token, "superseded", &newest.about);
                self.admit(token);
                return Some(ClientInfo::from_lines(&newest.about));
            }
            if self.waiter(&newest.token).is_some() {
                self.remove_waiter(&newest.token, token, "superseded", &request.client);
            }
        }
        let (token, about) = (token.to_owned(), request.client.clone());
        self.lock.newest = Some(Newest { ticket: arrival, token, about });
        None
    }

    /// Grants the lock to the caller.
    fn take(&mut self, request: &Request, waiter: Waiter) -> Verdict {
        self.dequeue(&waiter.token);
        let (now, at_least) = (self.now, millis(request.at_least));
        let keep_until = if at_least > 0 { now + at_least } else { 0 };
        let deadline = now + waiter.ttl.max(at_least);
        let slot = self.grant(waiter, Some(now), deadline, keep_until, request.wanted().0);
        granted(self.lock.fence, slot)
    }

    /// The answer to a caller that already holds the lock.
    fn hold_again(&mut self, request: &Request, attempt: u64, own: u64, wanted: u64) -> Verdict {
        let token = request.token.as_str();
        let at_least = millis(request.at_least);
        let mut fence = own;
        if wanted > 0 && wanted != own {
            fence = self.next_fence(wanted);
            self.lock.fence = fence;
        }
        if let Some(hold) = self.hold_mut(token) {
            (hold.fence, hold.attempt) = (fence, attempt);
            if at_least > 0 {
                hold.keep_until = hold.acquired + at_least;
            }
        }
        self.extend(token, request.ttl.as_millis(), 0);
        let slot = self.unexpired_hold(token).and_then(|hold| hold.slot);
        granted(fence, slot)
    }

    /// The answer to a caller that does not hold the lock yet; `head` keeps waiting.
    fn decide(
        &mut self,
        request: &Request,
        attempt: u64,
        head: Option<&Waiter>,
        nominated: usize,
    ) -> Verdict {
        let ((Fence(wanted), _), ticket) = request.wanted();
        let (now, ttl, token) = (self.now, request.ttl.as_millis(), request.token.as_str());
        let (enclosing, entered) = self.enclosing_hold(&request.enclosing);
        let is_enclosed = enclosing.is_some();
        let (owner, entered) = match (&request.owner, enclosing) {
            (Some(owner), _) => (owner.as_str(), self.owner_mode(owner.as_str())),
            (None, Some(hold)) => (hold.owner.as_str(), entered),
            (None, None) => ("", None),
        };
        let owner = if owner.is_empty() { request.fresh_owner.as_str() } else { owner };
        let entered = entered.filter(|_| request.reentrant);
        if (entered, request.mode) == (Some(Mode::Shared), Mode::Exclusive) {
            return Verdict::Answer(Answer::Upgrade);
        }
        if is_enclosed && entered.is_none() {
            return Verdict::Answer(Answer::Nested);
        }

        let queued = self.waiter(token);
        let waiter = Waiter {
            token: token.to_owned(),
            owner: owner.to_owned(),
            mode: request.mode,
            about: request.client.clone(),
            since: queued.map_or(now, |waiter| waiter.since),
            reentrant: request.reentrant,
            ttl,
            attempt,
            origin: match ticket {
                None => Origin::Counted,
                Some(0) => Origin::Proposed,
                Some(_) => Origin::Agreed,
            },
            next: request.next,
            ..Waiter::default()
        };
        // An owner may enter its own lock ahead of the queue, because the queue waits for that
        // owner. A hold that is restored needs no turn.
        let is_first = head.is_none_or(|head| request.next && !head.next);
        let overtakes = is_first || wanted > 0;
        let admitted = entered.is_some() || self.admissible(request.mode, &[]) && overtakes;
        if ticket.is_none() && admitted {
            self.begin_generation(request);
            let supersedes =
                request.supersedes && request.arrival.is_none() && wanted == 0 && !is_enclosed;
            if supersedes {
                self.supersede(request, self.own_ticket());
            }
            let granted = self.take(request, waiter);
            if supersedes {
                self.admit(token);
            }
            return granted;
        }
        let heartbeat = request.heartbeat.map_or(0, millis);
        if heartbeat == 0 && ticket.is_none() {
            self.record_skip(token, &request.client);
            return Verdict::Answer(Answer::Busy(self.brief_view()));
        }

        self.begin_generation(request);
        // Presumed alive for two heartbeats and a claim window, because one heartbeat may get lost.
        let alive = now + 2 * heartbeat + CLAIM_WINDOW;
        let waiter = Waiter { alive, ..waiter };
        if ticket.is_some() {
            return self.place(request, waiter, entered.is_some());
        }
        let (position, _) = self.enqueue(None, waiter);
        let turn = position.saturating_sub(nominated as u64).max(1);
        if turn == 1 {
            self.notify_head(token, token);
        }
        let sleep = self.millis_to_sleep(turn, request.mode, heartbeat, head);
        let (view, sleep) = (self.brief_view(), Duration::from_millis(sleep));
        let own = || Ticket(self.own_ticket());
        let arrival = request.supersedes.then(|| request.arrival.unwrap_or_else(own));
        Verdict::Answer(Answer::Queued { view, position, sleep, arrival, obstacle: None })
    }

    /// The verdict of one of several servers.
    fn place(&mut self, request: &Request, waiter: Waiter, enters: bool) -> Verdict {
        let ((Fence(wanted), slot), ticket) = request.wanted();
        let token = request.token.as_str();
        let (position, ticket) = self.enqueue(ticket, waiter.clone());
        let (head, nominated) = self.admit(token);
        if self.cleanup_pending {
            return Verdict::Again;
        }
        let position = self.position(token).map_or(position, |index| index as u64 + 1);
        // The reply says what a message would say.
        self.lock.mail.retain(|mail| mail.token != token);
        let placed = |view, position, sleep, nominated, kept_out| {
            let (ticket, sleep) = (Ticket(ticket), Duration::from_millis(sleep));
            Verdict::Proposed(Proposal { view, position, sleep, ticket, nominated, kept_out })
        };
        if enters || self.is_nominated(token) {
            // `admit` may have granted the slot to a waiter.
            if self.is_taken(slot) {
                return Verdict::Answer(Answer::Busy(self.brief_view()));
            }
            if wanted > 0 {
                return self.take(request, waiter);
            }
            let nomination = Some(self.nomination(position));
            return placed(self.brief_view(), position, CLAIM_WINDOW / 2, nomination, false);
        }
        let heartbeat = request.heartbeat.map_or(CLAIM_WINDOW, millis);
        let turn = position - nominated as u64;
        let sleep = self.millis_to_sleep(turn, request.mode, heartbeat, head.as_ref());
        let kept_out = request.heartbeat.is_none() && self.is_kept_out(position, request.mode);
        placed(self.brief_view(), position, sleep, None, kept_out)
    }

    /// A lock without a generation gets one, as random as the fresh owner.
    fn begin_generation(&mut self, request: &Request) {
        if self.lock.generation.is_empty() {
            let fresh = request.fresh_owner.as_str();
            let generation = fresh.get(fresh.len().saturating_sub(12)..).unwrap_or(fresh);
            generation.clone_into(&mut self.lock.generation);
        }
    }
}

/// The verdict for a caller that holds the lock.
fn granted(fence: u64, slot: Option<Slot>) -> Verdict {
    Verdict::Answer(Answer::Granted { fence: Fence(fence), slot })
}
