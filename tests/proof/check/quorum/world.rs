//! The world that a search plays: one lock on three servers, its clients, and what is under way
//! between them.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::client::Client;
use super::monitor::Monitor;
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
    /// The index that each server had at the start, because servers are sorted.
    pub(super) names: Vec<usize>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { course, servers, clients, monitor, names: _ } = self;
        (course, servers, clients, monitor).hash(hasher);
    }
}

impl World {
    /// Whether a client may act before the next tick although nothing arrives.
    pub(super) fn is_in_a_hurry(&self, index: usize) -> bool {
        self.clients[index].pauses_for_less_than(self.course.scope.clients[index].tick)
    }
}

/// The ID of the present run of a server.
pub(super) fn run_id(member: usize) -> String {
    member.to_string()
}
