//! Requests the lock, for the first time or again.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use crate::rules::model::transaction::Transaction;
use crate::rules::{Answer, HoldState, Request, Ticket, Verdict, millis};

impl Transaction<'_> {
    /// Requests the lock, for the first time or again: `attempt` grows each time.
    pub fn acquire(&mut self, request: &Request, attempt: u64) -> Verdict {
        match self.decide(request, attempt) {
            Continue(verdict) | Break(verdict) => verdict,
        }
    }

    fn decide(&mut self, request: &Request, attempt: u64) -> ControlFlow<Verdict, Verdict> {
        let token = request.token.as_str();
        self.reconcile();
        self.early_reply(token, attempt)?;
        if self.is_copy(token, attempt) {
            return Continue(Verdict::Again);
        }
        self.check_ahead(self.lock.fence)?;
        // A client that still asks has not started its command, so a hold that was revoked meanwhile
        // can go. It was revoked with all others: `early_reply` ends one that was revoked alone. The
        // request goes on.
        let hold = self.unexpired_hold(token);
        if hold.is_some_and(|hold| self.hold_state(hold) == HoldState::Revoked) {
            self.drop_hold(token);
        }
        if let Some(seen) = &request.seen
            && !self.foreign()
            && (seen.generation != self.lock.generation || seen.fence.0 > self.lock.fence)
        {
            self.close(seen);
        }
        self.supersede(request, request.arrival.map_or(0, |ticket| ticket.0))?;
        // Grants the lock to waiters whose turn it is. If the caller is one of them, it claims its
        // hold below.
        let head = self.admit(token).0;
        if self.cleanup_pending {
            return Continue(Verdict::Again);
        }

        if self.valid_hold(token).is_some() {
            return Continue(self.hold_again(request, attempt));
        }
        let (waiter, enters) = self.find_owner(request, attempt)?;
        // An owner may enter its own lock ahead of the queue, because the queue waits for that owner.
        // The head itself cannot go ahead: `admit` would have granted it the lock.
        let goes_ahead = head.as_ref().is_none_or(|head| request.next && !head.next);
        if enters || self.admissible(request.mode, &[]) && goes_ahead {
            if !request.supersedes || request.arrival.is_some() {
                return Continue(self.take(request, waiter, None, None));
            }
            // There will be no second call, so it gets its arrival, and cancels older requests, now.
            self.supersede(request, self.number_by_clock())?;
            let granted = self.take(request, waiter, None, None);
            self.admit(token);
            return Continue(granted);
        }
        let Some(heartbeat) = request.heartbeat.map(millis).filter(|&heartbeat| heartbeat > 0)
        else {
            self.record_skip(token, request.client.clone());
            return Continue(self.busy());
        };
        let (position, _) = self.enqueue(request, waiter, None);
        if position == 1 {
            self.notify_head(token, token);
        }
        let mode = head.filter(|_| position == 2).map_or(request.mode, |head| head.mode);
        let sleep = self.millis_to_sleep(heartbeat, position, mode);
        let (view, sleep) = (self.brief_view(), Duration::from_millis(sleep));
        let new = || Ticket(self.number_by_clock());
        let arrival = request.supersedes.then(|| request.arrival.unwrap_or_else(new));
        Continue(Verdict::Answer(Answer::Queued { view, position, sleep, arrival, obstacle: None }))
    }
}
