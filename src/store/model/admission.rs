//! Which requests a lock is granted to, and in which order.

use super::moment::{BATCH, CLAIM, DAY, Moment};
use super::{Hold, Place};
use crate::lock::Mode;
use crate::lock::view::HoldState;

impl Moment<'_> {
    /// May a request of this mode be granted now, as far as the present holds go?
    pub(super) fn admissible(&self, mode: Mode) -> bool {
        let reinstated = || self.lock.holds.iter().any(|hold| hold.standing == HoldState::Revoked);
        match mode {
            _ if !self.live => !self.foreign(),
            _ if self.lock.mode != Some(mode) || reinstated() => false,
            Mode::Exclusive => false,
            Mode::Shared => true,
            Mode::Slots(slots) => self.lock.holds.len() < slots.get() as usize,
        }
    }

    /// How an owner that was chosen by a user holds the lock. A slot cannot be entered again.
    pub(super) fn mode_of(&self, owner: &str) -> Option<Mode> {
        let own = |hold: &Hold| {
            hold.named && hold.owner == owner && self.standing(hold) == HoldState::Held
        };
        let mode = self.lock.mode.filter(|mode| mode.slots().is_none());
        mode.filter(|_| self.live && self.lock.holds.iter().any(own))
    }

    /// May a waiter enter what its owner holds by now?
    fn may_enter(&self, place: &Place) -> bool {
        let outer = if place.reentrant && place.named { self.mode_of(&place.owner) } else { None };
        match outer {
            Some(Mode::Exclusive) => true,
            Some(Mode::Shared) => place.mode == Mode::Shared,
            _ => false,
        }
    }

    /// The clock by which fences count.
    fn micros(&self) -> u64 {
        self.now.saturating_mul(1_000)
    }

    /// A fence more than a day ahead of the clock was written by a server whose clock was wrong, or
    /// by nobody.
    pub(super) fn is_ahead(&self, fence: u64) -> bool {
        fence > self.micros().saturating_add(DAY * 1_000)
    }

    /// By how many milliseconds a fence is ahead of the clock.
    pub(super) fn millis_ahead(&self, fence: u64) -> u64 {
        fence.saturating_sub(self.micros()) / 1_000
    }

    /// Larger than all before and not behind the clock; the one that is wanted, if it is larger
    /// than all before.
    pub(super) fn next_fence(&self, wanted: u64) -> u64 {
        let last = self.lock.fence;
        if wanted > last { wanted } else { self.micros().max(last + 1) }
    }

    /// The only place where a lock is granted. What is entered again stays as exclusive as it is.
    pub(super) fn grant(&mut self, place: Place, deadline: u64, keep: u64, wanted: u64) {
        let Place { token, owner, named, mode, about, ttl, attempt, .. } = place;
        self.lock.fence = self.next_fence(wanted);
        if !self.live || self.lock.mode != Some(Mode::Exclusive) {
            self.lock.mode = Some(mode);
        }
        self.live = true;
        let (fence, now) = (self.lock.fence, self.now);
        self.lock.holds.push(Hold {
            token,
            owner,
            named,
            mode,
            about,
            fence,
            acquired: now,
            renewed: now,
            deadline,
            keep,
            ttl,
            attempt,
            standing: HoldState::Held,
        });
        self.watch();
    }

    fn wake(&mut self, token: String) {
        self.lock.woken.push(token);
    }

    /// Only the head of the queue watches for the end of a lease, so a new head has to know that it is
    /// one: by being woken, or from the reply to its own call.
    pub(super) fn tell(&mut self, head: &str, caller: &str) {
        if self.lock.told.as_deref() != Some(head) {
            self.lock.told = Some(head.to_owned());
            if head != caller {
                self.wake(head.to_owned());
            }
        }
    }

    /// Grants the lock to the head of the queue for as long as it fits, dropping the dead. Returns
    /// the mode of the head if it has to go on waiting.
    pub(super) fn admit(&mut self, caller: &str) -> Option<Mode> {
        let believed = !self.is_ahead(self.lock.fence);
        for _ in 0..BATCH {
            let Some(head) = self.lock.queue.first() else {
                if !self.live && !self.foreign() && self.lock.holds.is_empty() {
                    self.become_idle();
                }
                return None;
            };
            let (token, mode) = (head.token.clone(), head.mode);
            let fits = believed && (self.admissible(mode) || self.may_enter(head));
            match head.alive >= self.now {
                false => {
                    self.lock.queue.remove(0);
                }
                true if self.leftovers => {
                    self.wake(token);
                    return Some(mode);
                }
                true if fits => {
                    let head = self.lock.queue.remove(0);
                    self.grant(head, self.now + CLAIM, 0, 0);
                    self.wake(token);
                }
                true => {
                    self.tell(&token, caller);
                    return Some(mode);
                }
            }
        }
        let (rest, mode) = self.lock.queue.first().map(|rest| (rest.token.clone(), rest.mode))?;
        self.leftovers = true;
        self.wake(rest);
        Some(mode)
    }

    pub(super) fn wake_head(&mut self) {
        if let Some(head) = self.lock.queue.first() {
            self.wake(head.token.clone());
        }
    }
}
