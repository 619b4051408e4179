//! Admission: which requests are granted the lock, and in which order.

use super::lock::{BATCH, CLAIM_WINDOW, Hold, Message, Origin, Waiter};
use super::transaction::Transaction;
use crate::rules::{HoldState, Mode, Slot};

impl Transaction<'_> {
    /// Whether the present holds allow a grant of this mode now. The modes of the `nominated`
    /// waiters count as if they held the lock too.
    pub(crate) fn admissible(&self, mode: Mode, nominated: &[Mode]) -> bool {
        let reinstated = || self.lock.holds.iter().any(|hold| hold.status == HoldState::Revoked);
        let (present, number) = match self.live {
            true => (self.lock.mode, self.lock.holds.len()),
            false => (nominated.first().copied(), 0),
        };
        match mode {
            _ if !self.live && nominated.is_empty() => !self.foreign(),
            _ if present != Some(mode) || reinstated() => false,
            Mode::Exclusive => false,
            Mode::Shared => true,
            Mode::Slots(slots) => number + nominated.len() < slots.get() as usize,
        }
    }

    /// The only place that grants a lock. A lock that is exclusive stays so when its owner enters
    /// it again. Returns the number of the slot.
    pub(crate) fn grant(
        &mut self,
        waiter: Waiter,
        renewed: Option<u64>,
        deadline: u64,
        keep_until: u64,
        wanted: u64,
    ) -> Option<Slot> {
        self.lock.fence = self.next_fence(wanted);
        if !self.live || self.lock.mode != Some(Mode::Exclusive) {
            self.lock.mode = Some(waiter.mode);
        }
        // A wanted fence is from one of several servers, whose holders have no numbers.
        let slot = if wanted == 0 { self.free_slot() } else { None };
        self.live = true;
        self.lock.holds.push(Hold {
            fence: self.lock.fence,
            acquired: self.now,
            renewed,
            deadline,
            keep_until,
            slot,
            ..Hold::of(waiter)
        });
        self.set_guard_to_latest();
        slot
    }

    /// On one of several servers, a waiter is not granted the lock but nominated: it may now
    /// commit, that is, ask this server for a hold. It does so once enough servers have nominated
    /// it. A nomination is only a hint. It passes to an older waiter that arrives later, and lapses
    /// unless the waiter asks again in time.
    pub(crate) fn is_nominated(&self, token: &str) -> bool {
        self.lock.nominated.iter().any(|nominated| nominated == token)
    }

    /// Admits waiters from the head of the queue while the lock can be granted to them. Returns the
    /// head, which is the first waiter that is not nominated, if it must keep waiting, and how many
    /// are nominated.
    pub(crate) fn admit(&mut self, caller: &str) -> (Option<Waiter>, usize) {
        let mut granted_to = Vec::new();
        let (head, nominated) = self.move_up(caller, &mut granted_to);
        // A server writes to the client of the last message first, and the new head can wait.
        for token in granted_to {
            self.wake(&token, Message::Look);
        }
        (head, nominated)
    }

    /// Grants or calls waiters from the head of the queue while it can, and drops dead ones. Adds
    /// those that are granted the lock to `granted_to`. Returns the same as `admit`.
    fn move_up(&mut self, caller: &str, granted_to: &mut Vec<String>) -> (Option<Waiter>, usize) {
        let (mut work, mut modes, mut tokens) = (0, Vec::new(), Vec::new());
        while work < BATCH {
            let Some(head) = self.lock.queue.get(modes.len()).cloned() else {
                let is_free = !self.live && !self.foreign() && self.lock.holds.is_empty();
                self.lock.nominated = tokens;
                if modes.is_empty() && is_free {
                    self.become_idle();
                }
                return (None, modes.len());
            };
            let is_own = head.origin == Origin::Counted;
            if head.alive < self.now {
                self.lock.queue.remove(&head.token);
                work += 1;
            } else if self.cleanup_pending {
                self.wake(&head.token, Message::Look);
                return (Some(head), modes.len());
            } else if modes.len() < BATCH
                && (!is_own || modes.is_empty())
                && !self.is_ahead(self.lock.fence)
                && (self.admissible(head.mode, &modes) || self.may_enter(&head))
            {
                if is_own {
                    self.lock.queue.remove(&head.token);
                    granted_to.push(head.token.clone());
                    self.grant(head, None, self.now + CLAIM_WINDOW, 0, 0);
                    work += 1;
                } else {
                    self.nominate(&head.token, caller);
                    modes.push(head.mode);
                    tokens.push(head.token);
                }
            } else {
                self.lock.nominated = tokens;
                self.notify_head(&head.token, caller);
                return (Some(head), modes.len());
            }
        }
        self.lock.nominated = tokens;
        let rest = self.lock.queue.get(modes.len()).cloned();
        if let Some(rest) = &rest {
            self.cleanup_pending = true;
            self.wake(&rest.token, Message::Look);
        }
        (rest, modes.len())
    }

    fn nominate(&mut self, token: &str, caller: &str) {
        if self.is_nominated(token) {
            return;
        }
        let until = self.now + CLAIM_WINDOW;
        if let Some(waiter) = self.lock.queue.find_mut(token) {
            // Another client's call does not show that the waiter is alive.
            waiter.alive = waiter.alive.min(until);
        }
        if token != caller {
            self.wake(token, Message::Called(self.next_fence(0)));
        }
    }

    /// Whether older waiters whose tickets the servers agreed on keep a waiter out. A ticket that
    /// is only proposed may still become a younger one.
    pub(crate) fn is_kept_out(&self, position: u64, mode: Mode) -> bool {
        let older = self.lock.queue.iter().take((position as usize - 1).min(BATCH));
        let agreed = |waiter: &&Waiter| waiter.origin == Origin::Agreed && waiter.alive >= self.now;
        let modes: Vec<Mode> = older.filter(agreed).map(|waiter| waiter.mode).collect();
        !modes.is_empty() && !self.admissible(mode, &modes)
    }
}
