//! The world that a search plays: one lock on three servers, its clients, what is under way between
//! them, and what can happen next.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::client::Client;
use super::monitor::Monitor;
use super::scope::{Budget, SERVERS, Scope};
use super::server::{AHEAD, Server, State};
use crate::check::property::Property;
use crate::check::time::{NOW, TICK, now};

/// How long a client awaits a reply. It is a small part of a lease, as always.
pub(super) const IO_TIMEOUT: Duration = TICK;

/// Pauses up to this long may end before a message arrives.
pub(super) const SHORT: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) scope: &'static Scope,
    pub(super) left: Budget,
    pub(super) servers: Vec<Server>,
    pub(super) clients: Vec<Client>,
    pub(super) monitor: Monitor,
    /// The index that each server had at the start, because servers are sorted.
    pub(super) names: Vec<usize>,
    /// What this state breaks.
    pub(super) broken: Option<Property>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { scope: _, left, servers, clients, monitor, names: _, broken: _ } = self;
        (left, servers, clients, monitor).hash(hasher);
    }
}

impl World {
    pub(super) fn start(scope: &'static Scope) -> Self {
        let count = scope.clients.len();
        // Old enough for any lease.
        let since = now() - 10 * TICK;
        let server = |member| {
            let Budget { dead, refusals, ahead, frozen, .. } = scope.budget;
            let (dead, refusals) = (usize::from(dead), usize::from(dead + refusals));
            let state = match member {
                _ if member < dead => State::Dead,
                _ if member < refusals => State::Refusing,
                _ if member >= SERVERS - usize::from(frozen) => State::Frozen,
                _ => State::Up,
            };
            let is_ahead = (refusals..refusals + usize::from(ahead)).contains(&member);
            let clock = if is_ahead { NOW + AHEAD.as_millis() as u64 } else { NOW };
            Server { state, clock, ..Server::new(count, since) }
        };
        let mut world = Self {
            scope,
            left: scope.budget,
            servers: (0..SERVERS).map(server).collect(),
            clients: vec![Client::default(); count],
            monitor: Monitor::new(count),
            names: (0..SERVERS).collect(),
            broken: None,
        };
        world.make_canonical();
        world
    }

    /// Whether replies may be late.
    pub(super) fn is_patient(&self) -> bool {
        self.scope.budget.delays > 0
    }

    /// How many messages are under way that time would delay.
    pub(super) fn under_way(&self) -> u8 {
        (0..self.clients.len()).map(|index| self.load(index)).sum()
    }

    /// How many of them are a client's.
    pub(super) fn load(&self, index: usize) -> u8 {
        let reads = self.clients[index].reads();
        let loads = self.servers.iter().map(|server| server.load(index, reads));
        loads.sum()
    }
}

/// The ID of the present run of a server.
pub(super) fn run_id(member: usize) -> String {
    member.to_string()
}
