//! Who may have a lock, in which order, and how it is given away and taken back.

use super::moment::{CLAIM, Moment};
use super::{Hold, Place};
use crate::lock::Mode;
use crate::view::Standing;

impl Moment<'_> {
    /// May a request of this mode be granted now, as far as the present holds go?
    pub(super) fn admissible(&self, mode: Mode) -> bool {
        match mode {
            _ if !self.live => !self.foreign(),
            _ if self.lock.mode != Some(mode) => false,
            Mode::Exclusive => false,
            Mode::Shared => true,
            Mode::Slots(slots) => self.lock.holds.len() < slots.get() as usize,
        }
    }

    /// How an owner holds the lock.
    pub(super) fn mode_of(&self, owner: &str) -> Option<Mode> {
        let modes = || {
            let own = |hold: &&Hold| hold.owner == owner && hold.standing == Standing::Held;
            self.live_holds().filter(own).map(|hold| hold.mode)
        };
        // A slot cannot be entered again.
        [Mode::Exclusive, Mode::Shared].into_iter().find(|entered| modes().any(|m| m == *entered))
    }

    /// May a waiter enter what its owner holds by now?
    fn may_enter(&self, place: &Place) -> bool {
        let outer = if place.reentrant { self.mode_of(&place.owner) } else { None };
        match outer {
            Some(Mode::Exclusive) => true,
            Some(Mode::Shared) => place.mode == Mode::Shared,
            _ => false,
        }
    }

    /// Larger than all before and not behind the clock; the one that is wanted, if it is larger
    /// than all before.
    pub(super) fn next_fence(&self, wanted: u64) -> u64 {
        let last = self.lock.fence;
        if wanted > last { wanted } else { self.now.max(last + 1) }
    }

    /// The only place where a lock is given away.
    pub(super) fn grant(&mut self, place: Place, deadline: u64, keep: u64, wanted: u64) {
        let Place { token, owner, mode, about, .. } = place;
        self.lock.fence = self.next_fence(wanted);
        self.mix_in(mode);
        let (fence, now) = (self.lock.fence, self.now);
        self.lock.holds.push(Hold {
            token,
            owner,
            mode,
            about,
            fence,
            acquired: now,
            renewed: now,
            deadline,
            keep,
            standing: Standing::Held,
            by: String::new(),
        });
        self.watch();
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

    /// Grants the lock to the head of the queue for as long as it fits, dropping the dead. Says if
    /// somebody has to go on waiting.
    pub(super) fn admit(&mut self) -> bool {
        while let Some(head) = self.lock.queue.first() {
            let alive = head.alive >= self.now;
            if alive && !self.admissible(head.mode) && !self.may_enter(head) {
                return true;
            }
            let head = self.lock.queue.remove(0);
            if alive {
                self.lock.woken.push(head.token.clone());
                self.grant(head, self.now + CLAIM, 0, 0);
            }
        }
        false
    }

    pub(super) fn wake_head(&mut self) {
        if let Some(head) = self.lock.queue.first() {
            self.lock.woken.push(head.token.clone());
        }
    }
}
