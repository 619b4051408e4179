//! The holds of a lock: their leases, how they stand, and how they end.

use super::moment::{BATCH, LAST, LISTED, Moment};
use super::{Guard, Hold, Revoked};
use crate::lock::Mode;
use crate::lock::view::{Ending, HoldState, Holder};

impl Moment<'_> {
    /// Is this one of the holds, whatever its standing?
    pub(super) fn has(&self, token: &str) -> Option<&Hold> {
        let hold = self.lock.holds.iter().find(|hold| hold.token == token);
        hold.filter(|hold| (self.live || self.foreign()) && hold.deadline >= self.now)
    }

    /// Does this token hold the lock?
    pub(super) fn holds(&self, token: &str) -> Option<&Hold> {
        self.has(token).filter(|hold| self.standing(hold) == HoldState::Held)
    }

    /// How a hold stands, revocations included.
    pub(super) fn standing(&self, hold: &Hold) -> HoldState {
        match hold.standing {
            HoldState::Held if hold.fence <= self.lock.revocation.floor => HoldState::Revoked,
            standing => standing,
        }
    }

    pub(super) fn hold_mut(&mut self, token: &str) -> Option<&mut Hold> {
        self.lock.holds.iter_mut().find(|hold| hold.token == token)
    }

    pub(super) fn live_holds(&self) -> impl Iterator<Item = &Hold> {
        self.lock.holds.iter().filter(|hold| self.live && hold.deadline >= self.now)
    }

    /// Makes the guard say that the hold with the latest deadline is live.
    pub(super) fn watch(&mut self) {
        let latest = self.lock.holds.iter().max_by_key(|hold| (hold.deadline, &hold.token));
        if let Some(Hold { token, deadline, .. }) = latest {
            self.lock.written = Some(token.clone());
            self.lock.guard = Some(Guard { value: token.clone(), until: Some(*deadline) });
        }
    }

    /// Makes a hold last for another `ttl` from now, or until `at_least` if that is later.
    pub(super) fn extend(&mut self, token: &str, ttl: u64, at_least: u64) -> u64 {
        let now = self.now;
        let mut left = 0;
        if let Some(hold) = self.hold_mut(token) {
            (hold.renewed, hold.ttl) = (now, ttl);
            hold.deadline = hold.keep.max(now + ttl).max(at_least);
            left = hold.deadline - now;
        }
        self.watch();
        left
    }

    pub(super) fn drop(&mut self, token: &str) {
        let foreign = self.foreign();
        self.lock.holds.retain(|hold| hold.token != token);
        if foreign {
            return;
        }
        if self.lock.holds.is_empty() {
            self.live = false;
            (self.lock.guard, self.lock.written, self.lock.mode) = (None, None, None);
        } else {
            self.settle_mode();
            self.watch();
        }
    }

    /// An owner's shared hold may outlive the exclusive one that it was entered in.
    pub(super) fn settle_mode(&mut self) {
        let few = self.lock.holds.len() <= LISTED;
        let exclusive = self.live_holds().any(|hold| hold.mode == Mode::Exclusive);
        if few && self.lock.mode == Some(Mode::Exclusive) && !exclusive {
            self.lock.mode = Some(Mode::Shared);
        }
    }

    /// From now on no present hold is the lock's any more, but each keeps others out until it is
    /// released or its lease expires.
    pub(super) fn revoke_all(&mut self, how: Ending, by: &str) {
        if self.lock.revocation.floor < self.lock.fence {
            let (floor, how, by) = (self.lock.fence, Some(how), by.to_owned());
            self.lock.revocation = Revoked { floor, how, by, at: self.now };
        }
    }

    /// How and by whom the holds below the floor were revoked, and when.
    pub(super) fn revocation(&self) -> (Ending, String, u64) {
        let Revoked { how, by, at, .. } = &self.lock.revocation;
        match how {
            Some(how) => (*how, by.clone(), *at),
            None => (Ending::Revoked, String::new(), self.now),
        }
    }

    /// A hold that was forgotten, as a waiter remembers it: revoked, exclusive, by its id, and once.
    pub(super) fn reinstate(&mut self, holder: &Holder, left: u64) {
        let known = self.lock.holds.iter().any(|hold| hold.token == holder.id);
        if holder.id.len() > 8 || known || self.is_over(&holder.id) || self.is_ahead(holder.fence.0)
        {
            return;
        }
        self.mark_over(&holder.id, left);
        if !self.live {
            self.lock.mode = Some(Mode::Exclusive);
        }
        self.live = true;
        self.lock.fence = self.lock.fence.max(holder.fence.0);
        self.lock.holds.push(Hold {
            token: holder.id.clone(),
            owner: String::new(),
            named: false,
            mode: Mode::Exclusive,
            about: holder.client.to_lines(),
            fence: holder.fence.0,
            acquired: holder.acquired.0,
            renewed: self.now,
            deadline: self.now + left,
            keep: 0,
            ttl: 0,
            attempt: 0,
            standing: HoldState::Revoked,
        });
        self.watch();
    }

    /// Drops holds whose leases have expired, as many as one call may.
    fn drop_expired(&mut self) {
        let now = self.now;
        let by_deadline = |one: &Hold, other: &Hold| {
            (one.deadline, &one.token).cmp(&(other.deadline, &other.token))
        };
        let mut expired: Vec<Hold> =
            self.lock.holds.extract_if(.., |hold| hold.deadline < now).collect();
        expired.sort_by(by_deadline);
        let later = expired.split_off(BATCH.min(expired.len()));
        self.record_expired(&expired);
        self.leftovers = !later.is_empty();
        self.lock.holds.extend(later);
    }

    /// Brings the holds up to date: before anything is decided from them.
    pub(super) fn reconcile(&mut self) {
        if self.deleted {
            self.revoke_all(Ending::Deleted, "");
            self.watch();
            self.deleted = false;
        } else if self.foreign() && self.lock.written.is_some() {
            // When the other tool's key is gone they keep others out again, until they end.
            self.revoke_all(Ending::Overwritten, "");
        }
        if self.lock.written.is_none() || self.live && self.lock.holds.len() == 1 {
            return;
        }
        if !self.live && !self.foreign() && self.lock.queue.is_empty() {
            // All of them have expired, and nobody waits.
            let mut gone = std::mem::take(&mut self.lock.holds);
            gone.sort_by(|one, other| {
                (one.deadline, &one.token).cmp(&(other.deadline, &other.token))
            });
            let surplus = gone.len().saturating_sub(LAST);
            self.record_expired(&gone[surplus..]);
            self.become_idle();
            return;
        }
        self.drop_expired();
        if self.live {
            self.settle_mode();
        } else if self.lock.holds.is_empty() {
            (self.lock.written, self.lock.mode) = (None, None);
        }
    }

    /// An idle lock keeps its fence and its life, and nothing else.
    pub(super) fn become_idle(&mut self) {
        (self.lock.written, self.lock.mode, self.lock.told) = (None, None, None);
        self.lock.revocation = Revoked::default();
        // Never granted, it is as if it had not been asked for.
        if self.lock.fence == 0 {
            self.lock.life.clear();
        }
    }
}
