//! What is asked of a lock: the twins of the scripts.

use std::time::Duration;

use super::moment::{BATCH, CLAIM, LAST, LISTED, Moment};
use super::{Ended, Hold, Place};
use crate::lock::view::{Ending, HoldState, Outcome, View};
use crate::lock::{Fence, Mode};
use crate::store::{Answer, Release, Renewal, Request, Revocation, Seen, Verdict};

/// Later than the head, the second in the queue looks after a lease.
const GRACE: u64 = 500;

/// How often the head of the queue looks at another tool's lock, which sends no messages.
const POLL: u64 = 1_000;

impl Moment<'_> {
    pub(super) fn acquire(&mut self, request: &Request, attempt: u64, seen: &[Seen]) -> Verdict {
        let token = request.token.as_str();
        let wanted = request.fence.map_or(0, |fence| fence.0);
        self.reconcile();
        if self.is_over(token) {
            return Verdict::Answer(Answer::Over(self.why_not_held(token)));
        }
        if self.leftovers {
            return Verdict::Again;
        }
        if self.attempt_of(token).is_some_and(|known| attempt <= known) {
            // A grant that was not claimed yet lasts for less than the caller would believe.
            let claimed = |hold: &&Hold| hold.deadline != hold.acquired + CLAIM;
            return match self.holds(token).filter(claimed) {
                Some(hold) => Verdict::Answer(Answer::Granted { fence: Fence(hold.fence) }),
                None => Verdict::Again,
            };
        }
        let furthest = self.lock.fence.max(wanted);
        if self.is_ahead(furthest) {
            return Verdict::FenceAhead(Duration::from_millis(self.millis_ahead(furthest)));
        }
        let ended = |ended: &Ended| ended.ending != Ending::Expired;
        if wanted > 0
            && self.holds(token).is_none()
            && (self.has(token).is_some() || self.recorded(token).is_some_and(ended))
        {
            return Verdict::Answer(Answer::Busy(self.brief_view()));
        }
        // Nobody waits for a reply to a request that is asked again.
        if self.has(token).is_some_and(|hold| self.standing(hold) == HoldState::Revoked) {
            self.drop(token);
        }
        for Seen { holder, left, life } in seen {
            let forgotten = *life != self.lock.life || holder.fence.0 > self.lock.fence;
            if !life.is_empty() && !self.foreign() && forgotten {
                self.reinstate(holder, millis(*left));
            }
        }
        let head = self.admit(token);
        if self.leftovers {
            return Verdict::Again;
        }
        if let Some(own) = self.holds(token).map(|hold| hold.fence) {
            return Verdict::Answer(self.hold_again(request, attempt, own, wanted));
        }
        Verdict::Answer(self.decide(request, attempt, head, wanted))
    }

    /// The number of the last request with this token.
    fn attempt_of(&self, token: &str) -> Option<u64> {
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        let place = self.lock.queue.iter().find(|place| place.token == token);
        hold.map(|hold| hold.attempt).or(place.map(|place| place.attempt))
    }

    /// The answer to one that holds the lock already.
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
                hold.keep = hold.acquired + at_least;
            }
        }
        self.extend(token, request.ttl.as_millis(), 0);
        Answer::Granted { fence: Fence(fence) }
    }

    fn decide(
        &mut self,
        request: &Request,
        attempt: u64,
        head: Option<Mode>,
        wanted: u64,
    ) -> Answer {
        let (now, ttl, token) = (self.now, request.ttl.as_millis(), request.token.as_str());
        let at_least = millis(request.at_least);
        let fresh = request.fresh_owner.as_str();
        let enclosing: Vec<_> =
            request.enclosing.iter().filter_map(|token| self.has(token.as_str())).collect();
        let innermost = enclosing.last();
        let modes = || {
            let own = enclosing.iter().filter(|hold| self.standing(hold) == HoldState::Held);
            own.map(|hold| hold.mode)
        };
        let (owner, named, entered) = match (&request.owner, innermost) {
            (Some(owner), _) => (owner.as_str().to_owned(), true, self.mode_of(owner.as_str())),
            (None, Some(hold)) => {
                let mut wanted = [Mode::Exclusive, Mode::Shared].into_iter();
                let entered = wanted.find(|mode| modes().any(|outer| outer == *mode));
                (hold.owner.clone(), hold.named, entered)
            }
            (None, None) => (String::new(), false, None),
        };
        let owner = if owner.is_empty() { fresh.to_owned() } else { owner };
        let inside = innermost.is_some();
        let entered = entered.filter(|_| request.reentrant);
        if (entered, request.mode) == (Some(Mode::Shared), Mode::Exclusive) {
            return Answer::Upgrade;
        }
        let place = Place {
            token: token.to_owned(),
            owner,
            named,
            mode: request.mode,
            about: request.client.clone(),
            since: now,
            alive: 0,
            reentrant: request.reentrant,
            ttl,
            attempt,
        };
        if entered.is_some() || self.admissible(request.mode) && head.is_none() {
            self.lock.queue.retain(|place| place.token != token);
            self.begin_life(fresh);
            let keep = if at_least > 0 { now + at_least } else { 0 };
            self.grant(place, now + ttl.max(at_least), keep, wanted);
            return Answer::Granted { fence: Fence(self.lock.fence) };
        }
        if inside {
            return Answer::Nested;
        }
        let Some(heartbeat) = request.heartbeat.map(millis).filter(|&heartbeat| heartbeat > 0)
        else {
            return Answer::Busy(self.brief_view());
        };
        self.begin_life(fresh);
        self.queue(Place { alive: now + 2 * heartbeat + CLAIM, ..place }, heartbeat, head)
    }

    /// A lock that has no life yet gets one, which is as random as the owner.
    fn begin_life(&mut self, fresh: &str) {
        if self.lock.life.is_empty() {
            self.lock.life =
                fresh.get(fresh.len().saturating_sub(12)..).unwrap_or(fresh).to_owned();
        }
    }

    fn queue(&mut self, place: Place, heartbeat: u64, head: Option<Mode>) -> Answer {
        let (mode, token) = (place.mode, place.token.clone());
        let queue = &mut self.lock.queue;
        let index = match queue.iter().position(|other| other.token == place.token) {
            Some(index) => {
                queue[index] = Place { since: queue[index].since, ..place };
                index
            }
            None => {
                queue.push(place);
                queue.len() - 1
            }
        };
        if index == 0 {
            self.tell(&token, &token);
        }
        let until = match index {
            0 if self.foreign() => {
                let until = self.lock.guard.as_ref().and_then(|guard| guard.until);
                (self.now + POLL).min(until.map_or(u64::MAX, |until| until + 1))
            }
            0 if self.live => self.awaited(mode),
            1 if self.live => self.awaited(head.unwrap_or(mode)) + GRACE,
            _ => u64::MAX,
        };
        let sleep = heartbeat.min(until.saturating_sub(self.now)).max(1);
        let view = self.brief_view();
        let position = Some(index as u64 + 1);
        Answer::Queued { view, position, sleep: Duration::from_millis(sleep) }
    }

    /// The end of the lease that a waiter of this mode waits for at the head of the queue.
    fn awaited(&self, mode: Mode) -> u64 {
        let deadlines = self.lock.holds.iter().map(|hold| hold.deadline);
        let held = self.lock.mode;
        let joins = held == Some(mode) || held == Some(Mode::Exclusive);
        let awaited = match mode {
            Mode::Shared | Mode::Slots(_) if joins => deadlines.min(),
            _ => deadlines.max(),
        };
        awaited.unwrap_or(0) + 1
    }

    pub(super) fn renew(&mut self, token: &str, ttl: Option<u64>) -> Renewal {
        self.reconcile();
        let held = self.holds(token).map(|hold| {
            // A process counts on what it has: exec, or a keeper.
            let counts = hold.about.split('\n').nth(4) != Some("acquire");
            let at_least = if counts { hold.deadline } else { 0 };
            (Fence(hold.fence), ttl.unwrap_or(hold.ttl), at_least)
        });
        let renewal = match held {
            Some((fence, ttl, at_least)) => {
                let left = Duration::from_millis(self.extend(token, ttl, at_least));
                Renewal::Renewed { fence, left }
            }
            None => Renewal::NotHeld(self.why_not_held(token)),
        };
        self.admit(token);
        renewal
    }

    pub(super) fn release(&mut self, token: &str, outcome: Outcome) -> Release {
        self.reconcile();
        let keep = self.holds(token).map(|hold| hold.keep);
        let release = match keep {
            Some(_) => Release::Released,
            None => Release::NotHeld(self.why_not_held(token)),
        };
        // By its id, which everybody can see, a hold is not released; a reinstated one is, by more.
        let id = token.get(..8).filter(|id| *id != token);
        let standing = self.has(token).map(|hold| hold.standing);
        let gone = match (id, standing) {
            (Some(_), Some(HoldState::Held | HoldState::Revoked)) => Some(token),
            (Some(id), _) if self.has(id).is_some() => Some(id),
            _ => None,
        };
        let line = gone.and_then(|gone| self.line_about_released(gone, outcome));
        // One that waits has nothing to release, and goes on waiting.
        if self.has(token).is_some() || self.lock.queue.iter().all(|place| place.token != token) {
            let hold = self.lock.holds.iter().find(|hold| hold.token == token);
            self.mark_over(token, hold.map_or(0, |hold| hold.ttl));
        }
        match keep.filter(|&keep| keep > self.now) {
            Some(keep) => {
                if let Some(hold) = self.hold_mut(token) {
                    (hold.standing, hold.deadline) = (HoldState::Cooling, keep);
                }
                self.watch();
                if self.admit(token).is_some() {
                    self.wake_head();
                }
            }
            None => {
                if let Some(gone) = gone.map(str::to_owned) {
                    self.drop(&gone);
                }
                self.admit(token);
            }
        }
        if let Some(line) = line {
            self.record(line);
        }
        release
    }

    pub(super) fn leave(&mut self, token: &str, ttl: u64) -> View {
        self.reconcile();
        self.lock.queue.retain(|place| place.token != token);
        self.mark_over(token, ttl);
        if self.has(token).is_some() {
            self.drop(token);
        }
        self.admit(token);
        self.brief_view()
    }

    pub(super) fn revoke(&mut self, revocation: Revocation, by: &str) -> View {
        let mut first = None;
        let mut from = 0;
        loop {
            let (before, again) = self.revoke_some(revocation, by, from);
            let before = first.get_or_insert(before);
            match again {
                Some(next) => from = next,
                None => return before.clone(),
            }
        }
    }

    /// One call of the script; says from which hold on to go on.
    fn revoke_some(
        &mut self,
        revocation: Revocation,
        by: &str,
        from: usize,
    ) -> (View, Option<usize>) {
        self.leftovers = false;
        self.reconcile();
        let before = self.view(0, LISTED, false);
        if self.leftovers {
            return (before, Some(0));
        }
        if self.foreign() && revocation == Revocation::WhenGone {
            return (before, None);
        }
        if self.live {
            self.revoke_all(Ending::Revoked, by);
        }
        self.lock
            .holds
            .sort_by(|one, other| (one.deadline, &one.token).cmp(&(other.deadline, &other.token)));
        let batch: Vec<_> = self.lock.holds.iter().skip(from).take(BATCH / 2).cloned().collect();
        let mut gone = 0;
        for (index, hold) in batch.iter().enumerate() {
            let cooling = hold.standing == HoldState::Cooling;
            if revocation == Revocation::Now {
                if !cooling && index + LAST >= batch.len() {
                    let (at, by) = (self.now, by.to_owned());
                    self.record(Ended::of(hold, Ending::Revoked, at, Outcome::Unknown, by));
                }
                // A waiter that has not claimed its grant goes on waiting with its token.
                if hold.deadline != hold.acquired + CLAIM {
                    self.mark_over(&hold.token, hold.ttl);
                }
                self.drop(&hold.token);
                gone += 1;
            } else if cooling && !self.foreign() {
                self.drop(&hold.token);
                gone += 1;
            }
        }
        let from = from + batch.len() - gone;
        if self.lock.holds.len() > from {
            return (before, Some(from));
        }
        if self.foreign() {
            (self.lock.guard, self.lock.written, self.lock.mode) = (None, None, None);
        }
        self.admit("");
        (before, None)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
