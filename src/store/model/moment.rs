//! What is done to a lock at a moment: admission, the order of the queue and expiry.

use std::time::Duration;

use super::{Ended, Guard, Hold, Lock, Place};
use crate::lock::{Fence, Mode};
use crate::store::{Answer, Eviction, Release, Renewal, Request, Seen};
use crate::view::{Ending, Holder, Outcome, Standing, View};

/// How long a lock granted to a waiter waits to be claimed.
pub(super) const CLAIM: u64 = 2_000;

/// How often the head of the queue looks at another tool's lock, which sends no messages.
const POLL: u64 = 1_000;

/// How many holders a reply to somebody who waits has in full.
const FIRST: usize = 3;

/// A lock at a moment, while something is done to it.
pub(super) struct Moment<'a> {
    pub(super) lock: &'a mut Lock,
    pub(super) now: u64,
    /// Is there a hold of ours that keeps others out?
    pub(super) live: bool,
    /// Has the guard been deleted under live holds?
    pub(super) deleted: bool,
}

impl<'a> Moment<'a> {
    pub(super) fn of(lock: &'a mut Lock, now: u64) -> Self {
        lock.guard.take_if(|guard| guard.until.is_some_and(|until| until < now));
        let guard = lock.guard.as_ref().map(|guard| &guard.value);
        let held = lock.holds.iter().any(|hold| hold.deadline >= now);
        let deleted = lock.written.is_some() && guard.is_none() && held;
        let ours = guard.is_some() && guard == lock.written.as_ref();
        let live = (ours || deleted) && !lock.holds.is_empty();
        Self { lock, now, live, deleted }
    }

    pub(super) fn foreign(&self) -> bool {
        self.lock.guard.is_some() && !self.live
    }

    pub(super) fn has(&self, token: &str) -> Option<&Hold> {
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        hold.filter(|hold| (self.live || self.foreign()) && hold.deadline >= self.now)
    }

    pub(super) fn holds(&self, token: &str) -> Option<&Hold> {
        self.has(token).filter(|hold| hold.standing == Standing::Held)
    }

    pub(super) fn hold_mut(&mut self, token: &str) -> Option<&mut Hold> {
        self.lock.holds.iter_mut().find(|hold| hold.token == token)
    }

    pub(super) fn acquire(&mut self, request: &Request, seen: &[Seen]) -> Answer {
        let token = request.token.as_str();
        self.reconcile();
        let over = || self.has(token).is_some() || self.is_past(token);
        if request.fence.is_some_and(|fence| fence.0 > 0) && self.holds(token).is_none() && over() {
            return Answer::Busy(self.view(FIRST, false));
        }
        if self.has(token).is_some_and(|hold| hold.standing == Standing::Revoked) {
            self.drop(token);
        }
        let known = self.lock.fence;
        for Seen { holder, left } in seen {
            if holder.fence.0 > known && !self.foreign() {
                self.recall(holder, millis(*left));
            }
        }
        let must_wait = self.admit();

        let (now, ttl) = (self.now, request.ttl.as_millis());
        let at_least = millis(request.at_least);
        let wanted = request.fence.map_or(0, |fence| fence.0);
        if let Some(mut fence) = self.holds(token).map(|hold| hold.fence) {
            if wanted > 0 && wanted != fence {
                fence = self.next_fence(wanted);
                self.lock.fence = fence;
            }
            if let Some(hold) = self.hold_mut(token) {
                hold.fence = fence;
                if at_least > 0 {
                    hold.keep = hold.acquired + at_least;
                }
            }
            self.extend(token, ttl);
            return Answer::Granted { fence: Fence(fence) };
        }

        let mut enclosing = request.enclosing.iter().rev();
        let inside = enclosing.find_map(|token| self.has(token.as_str()));
        let owner = match (&request.owner, inside) {
            (Some(owner), _) => owner.as_str().to_owned(),
            (None, Some(hold)) if !hold.owner.is_empty() => hold.owner.clone(),
            (None, _) => request.fresh_owner.as_str().to_owned(),
        };
        let inside = inside.is_some();
        let entered = if request.reentrant { self.mode_of(&owner) } else { None };
        if (entered, request.mode) == (Some(Mode::Shared), Mode::Exclusive) {
            return Answer::Upgrade;
        }
        let place = Place {
            token: token.to_owned(),
            owner,
            mode: request.mode,
            about: request.about.clone(),
            since: now,
            alive: 0,
            reentrant: request.reentrant,
        };
        if entered.is_some() || self.admissible(request.mode) && !must_wait {
            self.lock.queue.retain(|place| place.token != token);
            let keep = if at_least > 0 { now + at_least } else { 0 };
            self.grant(place, now + ttl.max(at_least), keep, wanted);
            return Answer::Granted { fence: Fence(self.lock.fence) };
        }
        if inside {
            return Answer::Inside;
        }
        let Some(heartbeat) = request.heartbeat.map(millis).filter(|&heartbeat| heartbeat > 0)
        else {
            return Answer::Busy(self.view(FIRST, false));
        };
        self.line_up(Place { alive: now + 2 * heartbeat + CLAIM, ..place }, heartbeat)
    }

    fn line_up(&mut self, place: Place, heartbeat: u64) -> Answer {
        let (mode, queue) = (place.mode, &mut self.lock.queue);
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
        let sleep = match index {
            0 if self.foreign() => {
                let until = self.lock.guard.as_ref().and_then(|guard| guard.until);
                let left = until.map_or(POLL, |until| (until + 1).saturating_sub(self.now));
                heartbeat.min(POLL).min(left)
            }
            0 if self.live => {
                let deadlines = self.lock.holds.iter().map(|hold| hold.deadline);
                let held = self.lock.mode;
                let awaited = match mode {
                    Mode::Exclusive => deadlines.max(),
                    _ if held == Some(mode) || held == Some(Mode::Exclusive) => deadlines.min(),
                    _ => deadlines.max(),
                };
                let left = (awaited.unwrap_or(0) + 1).saturating_sub(self.now);
                heartbeat.min(left).max(1)
            }
            0 => heartbeat,
            _ => self.claim_ends().map_or(heartbeat, |left| heartbeat.min(left).max(1)),
        };
        let position = Some(u64::try_from(index).unwrap_or(u64::MAX) + 1);
        let sleep = Duration::from_millis(sleep);
        Answer::Queued { view: self.view(FIRST, false), position, sleep }
    }

    /// When somebody has been granted the lock and has not claimed it: how long until that lapses.
    fn claim_ends(&self) -> Option<u64> {
        match &self.lock.holds[..] {
            [hold] if self.live && hold.deadline == hold.acquired + CLAIM => {
                Some((hold.deadline + 1).saturating_sub(self.now))
            }
            _ => None,
        }
    }

    pub(super) fn renew(&mut self, token: &str, ttl: u64) -> Renewal {
        self.reconcile();
        let fence = self.holds(token).map(|hold| Fence(hold.fence));
        if fence.is_some() {
            self.extend(token, ttl);
        }
        self.admit();
        fence.map_or(Renewal::NotHeld, |fence| Renewal::Renewed { fence })
    }

    pub(super) fn release(&mut self, token: &str, outcome: Outcome) -> Release {
        self.reconcile();
        let keep = self.holds(token).map(|hold| hold.keep);
        if let Some(keep) = keep.filter(|&keep| keep > self.now) {
            self.note(token, outcome);
            if let Some(hold) = self.hold_mut(token) {
                (hold.standing, hold.deadline) = (Standing::Cooling, keep);
            }
            self.watch();
            if self.admit() {
                self.wake_head();
            }
            return Release::Released;
        }
        // By its id, which everybody can see, a hold is not released; a recalled one is, by more.
        let id = token.get(..8).filter(|id| *id != token);
        let gone = match (id, self.has(token).map(|hold| hold.standing)) {
            (Some(_), Some(Standing::Held | Standing::Revoked)) => Some(token),
            (Some(id), _) if self.has(id).is_some() => Some(id),
            _ => None,
        };
        if let Some(gone) = gone {
            self.note(gone, outcome);
            self.drop(gone);
        }
        self.admit();
        if keep.is_some() { Release::Released } else { Release::NotHeld }
    }

    fn drop_expired(&mut self) {
        let now = self.now;
        let expired = self.lock.holds.extract_if(.., |hold| hold.deadline < now).collect();
        self.record_expired(expired);
    }

    pub(super) fn leave(&mut self, token: &str) -> View {
        self.reconcile();
        self.lock.queue.retain(|place| place.token != token);
        if self.has(token).is_some() {
            self.drop(token);
        }
        self.admit();
        self.view(FIRST, false)
    }

    pub(super) fn revoke(&mut self, eviction: Eviction, by: &str) -> View {
        self.reconcile();
        let before = self.view(usize::MAX, false);
        match eviction {
            Eviction::Now => {
                let mut holds = std::mem::take(&mut self.lock.holds);
                holds.sort_by(|one, other| {
                    (one.deadline, &one.token).cmp(&(other.deadline, &other.token))
                });
                for hold in holds.iter_mut().filter(|hold| hold.standing != Standing::Cooling) {
                    hold.by = by.to_owned();
                    self.record(Ended::of(hold, Ending::Revoked, self.now, Outcome::Unknown));
                }
                (self.lock.guard, self.lock.written, self.lock.mode) = (None, None, None);
                self.live = false;
            }
            Eviction::WhenGone => {
                let cooling = |hold: &Hold| hold.standing == Standing::Cooling;
                let cooled: Vec<String> = self
                    .live_holds()
                    .filter(|hold| cooling(hold))
                    .map(|h| h.token.clone())
                    .collect();
                for token in cooled {
                    self.drop(&token);
                }
                self.revoke_the_held(by);
            }
        }
        self.admit();
        before
    }

    pub(super) fn live_holds(&self) -> impl Iterator<Item = &Hold> {
        self.lock.holds.iter().filter(|hold| self.live && hold.deadline >= self.now)
    }

    fn any_lives(&self) -> bool {
        self.lock.holds.iter().any(|hold| hold.deadline >= self.now)
    }

    fn revoke_the_held(&mut self, by: &str) {
        let now = self.now;
        for hold in self.lock.holds.iter_mut().filter(|hold| hold.deadline >= now) {
            if hold.standing == Standing::Held {
                hold.standing = Standing::Revoked;
                hold.by = by.to_owned();
            }
        }
    }

    /// Brings the holds up to date: before anything is decided from them.
    fn reconcile(&mut self) {
        if self.deleted {
            self.revoke_the_held("");
            self.watch();
        }
        if self.live && (self.deleted || self.lock.holds.len() > 1) {
            let before = self.lock.holds.len();
            self.drop_expired();
            if self.lock.holds.len() < before {
                self.settle_mode();
            }
            self.live = !self.lock.holds.is_empty();
        } else if self.foreign() && self.lock.written.is_some() && self.any_lives() {
            // Overwritten. When the other tool's key is gone they keep others out again.
            self.drop_expired();
            self.revoke_the_held("");
        } else if !self.live && self.lock.written.is_some() {
            let gone = std::mem::take(&mut self.lock.holds);
            self.record_expired(gone);
            (self.lock.written, self.lock.mode) = (None, None);
        }
        self.deleted = false;
    }

    /// Makes the guard say that the hold with the latest deadline is live.
    pub(super) fn watch(&mut self) {
        let latest = self.lock.holds.iter().max_by_key(|hold| (hold.deadline, &hold.token));
        if let Some(Hold { token, deadline, .. }) = latest {
            self.lock.written = Some(token.clone());
            self.lock.guard = Some(Guard { value: token.clone(), until: Some(*deadline) });
        }
    }

    fn extend(&mut self, token: &str, ttl: u64) {
        let now = self.now;
        if let Some(hold) = self.hold_mut(token) {
            (hold.renewed, hold.deadline) = (now, hold.keep.max(now + ttl));
        }
        self.watch();
    }

    /// What is entered again stays as exclusive as it is.
    pub(super) fn mix_in(&mut self, mode: Mode) {
        if !self.live || self.lock.mode != Some(Mode::Exclusive) {
            self.lock.mode = Some(mode);
        }
        self.live = true;
    }

    /// An owner's shared hold may outlive the exclusive one that it was entered in.
    pub(super) fn settle_mode(&mut self) {
        let exclusive = self.live_holds().any(|hold| hold.mode == Mode::Exclusive);
        if self.lock.mode == Some(Mode::Exclusive) && !exclusive {
            self.lock.mode = Some(Mode::Shared);
        }
    }

    /// A hold that was forgotten, as a waiter remembers it: revoked, and by its id.
    fn recall(&mut self, holder: &Holder, left: u64) {
        self.mix_in(holder.mode);
        self.lock.fence = self.lock.fence.max(holder.fence.0);
        self.lock.holds.retain(|hold| hold.token != holder.id);
        self.lock.holds.push(Hold {
            token: holder.id.clone(),
            owner: String::new(),
            mode: holder.mode,
            about: holder.about.to_lines(),
            fence: holder.fence.0,
            acquired: holder.acquired.0,
            renewed: self.now,
            deadline: self.now + left,
            keep: 0,
            standing: Standing::Revoked,
            by: String::new(),
        });
        self.watch();
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
