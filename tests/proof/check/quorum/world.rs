//! The world that a search plays: one lock on three servers, its clients, and what is under way
//! between them.

use std::time::Duration;

use super::client::Client;
use super::server::Server;
use crate::check::search::Course;
use crate::check::time::TICK;

/// How long a client awaits a reply. It is a small part of a lease, as always.
pub(super) const IO_TIMEOUT: Duration = TICK;

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) course: Course,
    pub(super) servers: Vec<Server>,
    pub(super) clients: Vec<Client>,
    pub(super) monitor: Monitor,
}

/// What has to be remembered to notice a broken promise.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Monitor {
    /// The largest fencing token granted, and what it was when each client began.
    pub(super) granted: u64,
    pub(super) floors: Vec<u64>,
    /// Which clients had agreed tickets in the queues when each client began: one bit for each.
    pub(super) older: Vec<u8>,
    /// For how many ticks the lock has been idle beside a waiter.
    pub(super) idle: u8,
}

impl World {
    /// Whether a client may act before the next tick although nothing arrives.
    pub(super) fn is_in_a_hurry(&self, index: usize) -> bool {
        self.clients[index].pauses_for_less_than(self.course.scope.clients[index].tick)
    }
}
