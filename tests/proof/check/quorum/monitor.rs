//! What has to be remembered to notice a broken promise.

use super::client::Client;

#[derive(Clone, Debug, Hash)]
pub(super) struct Monitor {
    /// The largest fencing token granted, and what it was when each client began.
    pub(super) granted: u64,
    pub(super) floors: Vec<u64>,
    /// Which clients had agreed tickets in the queues when each client began: one bit for each.
    pub(super) older: Vec<u8>,
    /// For how many ticks the lock has been idle beside a waiter.
    pub(super) idle: u8,
}

impl Monitor {
    pub(super) fn new(clients: usize) -> Self {
        let (floors, older) = (vec![0; clients], vec![0; clients]);
        Self { granted: 0, floors, older, idle: 0 }
    }

    pub(super) fn started(&mut self, client: usize, status: u8) {
        (self.floors[client], self.older[client]) = (self.granted, status);
    }

    /// Forgets what concerns only clients that no longer acquire the lock.
    pub(super) fn forget_ended(&mut self, clients: &[Client]) {
        let waiting = (0..clients.len()).filter(|index| clients[*index].is_acquiring());
        let waiting: u8 = waiting.map(|index| 1 << index).sum();
        for (index, client) in clients.iter().enumerate() {
            match client.is_acquiring() {
                true => self.older[index] &= waiting,
                false => (self.floors[index], self.older[index]) = (0, 0),
            }
        }
    }

    pub(super) fn each_fence(&mut self, change: &mut dyn FnMut(&mut u64)) {
        change(&mut self.granted);
        self.floors.iter_mut().for_each(change);
    }
}
