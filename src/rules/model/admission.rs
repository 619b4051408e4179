//! Admission: which requests are granted the lock, and in which order.

use super::lock::{CLAIM_WINDOW, Hold, Message, Origin, QueueEntry};
use super::transaction::Transaction;
use crate::rules::{Mode, Slot};

impl Transaction<'_> {
    /// Whether the present holds allow a grant of this mode now. The modes of the `nominated`
    /// waiters count as if they held the lock too.
    pub(super) fn admissible(&self, mode: Mode, nominated: &[Mode]) -> bool {
        let (present, number) = match self.live {
            true => (self.lock.mode, self.lock.holds.len()),
            false => (nominated.first().copied(), 0),
        };
        match mode {
            _ if !self.live && nominated.is_empty() => !self.foreign(),
            _ if present != Some(mode) => false,
            Mode::Exclusive => false,
            Mode::Shared => true,
            Mode::Slots(slots) => number + nominated.len() < slots.get() as usize,
        }
    }

    /// The only place that grants a lock. A lock that is exclusive stays so when its owner enters
    /// it again. One of several servers is asked for a fence and a slot.
    pub(super) fn grant(
        &mut self,
        waiter: QueueEntry,
        renewed: Option<u64>,
        deadline: u64,
        keep_until: u64,
        fence: Option<u64>,
        slot: Option<Slot>,
    ) {
        self.lock.fence = self.next_fence(fence);
        if !self.live || self.lock.mode != Some(Mode::Exclusive) {
            self.lock.mode = Some(waiter.mode);
        }
        let slot = self.next_slot(slot);
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
        self.lock.skipped = None;
    }

    /// Admits waiters from the head of the queue while the lock can be granted to them, nominates
    /// them on one of several servers, and drops dead ones. Returns the head, which is the first
    /// waiter that is not nominated, if it must keep waiting, and how many are nominated.
    pub(super) fn admit(&mut self, caller: &str) -> (Option<QueueEntry>, usize) {
        let (mut work, mut granted_to) = (0, Vec::new());
        let (mut modes, mut tokens) = (Vec::new(), Vec::new());
        let head = loop {
            let Some(head) = self.lock.queue.get(modes.len()).cloned() else { break None };
            let asks_one_server = head.origin == Origin::Counted;
            self.cleanup_pending |= work == self.batch;
            if !head.is_alive(self.now) && work < self.batch {
                self.dequeue(&head.token);
                work += 1;
            } else if self.cleanup_pending
                || modes.len() == self.batch
                || asks_one_server && !modes.is_empty()
                || self.is_ahead(self.lock.fence)
                || !(self.admissible(head.mode, &modes) || self.may_enter(&head))
            {
                break Some(head);
            } else if asks_one_server {
                self.dequeue(&head.token);
                granted_to.push(head.token.clone());
                self.grant(head, None, self.now + CLAIM_WINDOW, 0, None, None);
                work += 1;
            } else {
                modes.push(head.mode);
                self.nominate(&head.token, modes.len() as u64, caller);
                tokens.push(head.token);
            }
        };
        if !self.cleanup_pending {
            self.lock.nominated = tokens;
        }
        match &head {
            Some(head) if self.cleanup_pending => self.wake(&head.token, Message::Look),
            Some(head) => self.notify_head(&head.token, caller),
            None if modes.is_empty() && self.is_free() => self.become_idle(),
            None => {}
        }
        // A server writes to the client of the last message first, and the new head can wait.
        for token in granted_to {
            self.wake(&token, Message::Look);
        }
        (head, modes.len())
    }
}
