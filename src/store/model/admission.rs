//! Admission: which requests are granted the lock, and in which order.

use super::lock::{BATCH, CLAIM_WINDOW, Hold, Waiter};
use super::transaction::Transaction;
use crate::lock::Mode;
use crate::lock::view::HoldState;
use crate::seeded::{Flaw, seeded};

impl Transaction<'_> {
    /// Whether the present holds allow a grant of this mode now.
    pub(super) fn admissible(&self, mode: Mode) -> bool {
        let reinstated = || self.lock.holds.iter().any(|hold| hold.standing == HoldState::Revoked);
        match mode {
            _ if !self.live => !self.foreign(),
            _ if self.lock.mode != Some(mode) || reinstated() => false,
            Mode::Exclusive => false,
            Mode::Shared => true,
            Mode::Slots(slots) => {
                let more = usize::from(seeded(Flaw::AddsASlot));
                self.lock.holds.len() < slots.get() as usize + more
            }
        }
    }

    /// The only place that grants a lock. A lock that is exclusive stays so when its owner enters
    /// it again.
    pub(super) fn grant(
        &mut self,
        waiter: Waiter,
        renewed: Option<u64>,
        deadline: u64,
        keep_until: u64,
        wanted: u64,
    ) {
        let Waiter { token, owner, named, mode, about, ttl, attempt, .. } = waiter;
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
            renewed,
            deadline,
            keep_until,
            ttl,
            attempt,
            standing: HoldState::Held,
        });
        self.set_guard_to_latest();
    }

    /// Admits waiters from the head of the queue while the lock can be granted to them, and drops
    /// dead waiters. Returns the head if it must keep waiting.
    pub(super) fn admit(&mut self, caller: &str) -> Option<Waiter> {
        for _ in 0..BATCH {
            let Some(head) = self.lock.queue.first().cloned() else {
                if !self.live && !self.foreign() && self.lock.holds.is_empty() {
                    self.become_idle();
                }
                return None;
            };
            if head.alive < self.now {
                self.lock.queue.remove(0);
            } else if self.leftovers {
                self.wake(&head.token);
                return Some(head);
            } else if !self.is_ahead(self.lock.fence)
                && (self.admissible(head.mode) || self.may_enter(&head))
            {
                self.lock.queue.remove(0);
                self.wake(&head.token);
                let window = if seeded(Flaw::KeepsUnclaimed) { head.ttl } else { CLAIM_WINDOW };
                self.grant(head, None, self.now + window, 0, 0);
            } else {
                self.notify_head(&head.token, caller);
                return Some(head);
            }
        }
        let rest = self.lock.queue.first().cloned()?;
        self.leftovers = true;
        self.wake(&rest.token);
        Some(rest)
    }
}
