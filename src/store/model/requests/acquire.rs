//! Requests the lock, for the first time or again.

use std::time::Duration;

use crate::lock::view::{Ending, HoldState};
use crate::lock::{Fence, Mode};
use crate::seeded::{Flaw, seeded};
use crate::store::model::lock::{CLAIM_WINDOW, Waiter};
use crate::store::model::transaction::Transaction;
use crate::store::{Answer, Request, Seen, Verdict};

impl Transaction<'_> {
    pub(in crate::store::model) fn acquire(
        &mut self,
        request: &Request,
        attempt: u64,
        seen: &[Seen],
    ) -> Verdict {
        let token = request.token.as_str();
        let wanted = request.fence.map_or(0, |fence| fence.0);
        self.reconcile();
        if self.is_over(token) {
            return Verdict::Answer(Answer::Over(self.why_not_held(token)));
        }
        if self.leftovers {
            return Verdict::Again;
        }
        let is_copy = self.last_attempt(token).is_some_and(|last| attempt <= last);
        if is_copy && !seeded(Flaw::ObeysLateCopies) {
            // An unclaimed grant expires sooner than the caller would assume.
            return match self.valid_hold(token).filter(|hold| hold.renewed.is_some()) {
                Some(hold) => Verdict::Answer(Answer::Granted { fence: Fence(hold.fence) }),
                None => Verdict::Again,
            };
        }
        let furthest = self.lock.fence.max(wanted);
        if self.is_ahead(furthest) {
            return Verdict::FenceAhead(Duration::from_millis(self.millis_ahead(furthest)));
        }
        // A quorum requests its fence for a hold that was revoked meanwhile.
        if wanted > 0 && self.valid_hold(token).is_none() {
            let recorded = self.recorded(token);
            let ended = recorded.is_some_and(|entry| entry.ending != Ending::Expired);
            if self.unexpired_hold(token).is_some() || ended {
                return Verdict::Answer(Answer::Busy(self.brief_view()));
            }
        }
        // A caller that asks again no longer relies on its revoked hold.
        let unexpired = self.unexpired_hold(token);
        if unexpired.is_some_and(|hold| self.hold_state(hold) == HoldState::Revoked) {
            self.drop_hold(token);
        }
        for Seen { holder, left, life } in seen {
            let forgotten = *life != self.lock.life || holder.fence.0 > self.lock.fence;
            if !life.is_empty() && !self.foreign() && forgotten {
                self.reinstate(holder, millis(*left));
            }
        }
        let head = self.admit(token);
        if self.leftovers || seeded(Flaw::NeverFinishes) && head.is_some() {
            return Verdict::Again;
        }
        if let Some(own) = self.valid_hold(token).map(|hold| hold.fence) {
            return Verdict::Answer(self.hold_again(request, attempt, own, wanted));
        }
        Verdict::Answer(self.decide(request, attempt, head.as_ref(), wanted))
    }

    /// The attempt of the last request with this token.
    fn last_attempt(&self, token: &str) -> Option<u64> {
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        let waiter = self.lock.queue.iter().find(|waiter| waiter.token == token);
        hold.map(|hold| hold.attempt).or(waiter.map(|waiter| waiter.attempt))
    }

    /// The answer to a caller that already holds the lock.
    fn hold_again(&mut self, request: &Request, attempt: u64, own: u64, wanted: u64) -> Answer {
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
        Answer::Granted { fence: Fence(fence) }
    }

    /// The answer to a caller that does not hold the lock yet; `head` keeps waiting.
    fn decide(
        &mut self,
        request: &Request,
        attempt: u64,
        head: Option<&Waiter>,
        wanted: u64,
    ) -> Answer {
        let (now, ttl, token) = (self.now, request.ttl.as_millis(), request.token.as_str());
        let at_least = millis(request.at_least);
        let (enclosing, entered) = self.enclosing_hold(&request.enclosing);
        let is_enclosed = enclosing.is_some();
        let (owner, named, entered) = match (&request.owner, enclosing) {
            (Some(owner), _) => (owner.as_str(), true, self.owner_mode(owner.as_str())),
            (None, Some(hold)) => (hold.owner.as_str(), hold.named, entered),
            (None, None) => ("", false, None),
        };
        let owner = if owner.is_empty() { request.fresh_owner.as_str() } else { owner };
        let entered = entered.filter(|_| request.reentrant);
        if (entered, request.mode) == (Some(Mode::Shared), Mode::Exclusive) {
            return Answer::Upgrade;
        }

        let waiter = Waiter {
            token: token.to_owned(),
            owner: owner.to_owned(),
            named,
            mode: request.mode,
            about: request.client.clone(),
            since: now,
            alive: 0,
            reentrant: request.reentrant,
            ttl,
            attempt,
        };
        // An owner may enter its own lock ahead of the queue, because the queue waits for that
        // owner.
        if entered.is_some()
            || self.admissible(request.mode) && (head.is_none() || seeded(Flaw::Overtakes))
        {
            self.lock.queue.retain(|waiter| waiter.token != token);
            self.begin_life(request);
            let keep_until = if at_least > 0 { now + at_least } else { 0 };
            self.grant(waiter, Some(now), now + ttl.max(at_least), keep_until, wanted);
            return Answer::Granted { fence: Fence(self.lock.fence) };
        }
        if is_enclosed {
            return Answer::Nested;
        }
        let heartbeat = request.heartbeat.map_or(0, millis);
        if heartbeat == 0 {
            return Answer::Busy(self.brief_view());
        }

        self.begin_life(request);
        // Presumed alive for two heartbeats and a claim window, because one heartbeat may get lost.
        let alive = now + 2 * heartbeat + CLAIM_WINDOW;
        let position = self.enqueue(Waiter { alive, ..waiter });
        if position == 1 {
            self.notify_head(token, token);
        }
        let sleep = self.millis_to_sleep(position, request.mode, heartbeat, head);
        let (view, sleep) = (self.brief_view(), Duration::from_millis(sleep));
        Answer::Queued { view, position: Some(position), sleep }
    }

    /// A lock without a life gets one, as random as the fresh owner.
    fn begin_life(&mut self, request: &Request) {
        if self.lock.life.is_empty() {
            let fresh = request.fresh_owner.as_str();
            let life = fresh.get(fresh.len().saturating_sub(12)..).unwrap_or(fresh);
            life.clone_into(&mut self.lock.life);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
