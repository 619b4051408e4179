//! The world that a search plays: one lock on one server, its clients, and what is under way between
//! them.

use super::client::Client;
use super::monitor::Monitor;
use crate::check::search::Course;
use rlock::rules::model::Lock;

#[derive(Clone, Debug, Hash)]
pub(super) struct World {
    pub(super) course: Course,
    pub(super) lock: Lock,
    /// What the server's clock shows, in milliseconds: when time passes, all else moves back.
    pub(super) clock: u64,
    /// Whether the name of the server leads to a replica of it.
    pub(super) is_replica: bool,
    /// What a replica has that lags and may take over.
    pub(super) lagging: Option<Lock>,
    pub(super) clients: Vec<Client>,
    pub(super) monitor: Monitor,
}

impl World {
    pub(super) fn is_foreign(&self) -> bool {
        self.lock.guard.as_ref().is_some_and(|guard| guard.value == "theirs")
    }
}
