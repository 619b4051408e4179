//! The world that a search plays: one lock on one server, its clients, what is under way between
//! them, and what can happen next.

use std::hash::{Hash, Hasher};

use super::client::{Client, Phase};
use super::connection::Sent;
use super::monitor::Monitor;
use super::property::Property;
use super::scope::{Budget, Scope, whose};
use super::time::NOW;
use rlock::rules::model::Lock;

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) scope: &'static Scope,
    pub(super) left: Budget,
    pub(super) lock: Lock,
    pub(super) clients: Vec<Client>,
    /// What old connections still carry, in order on each.
    pub(super) late: Vec<Vec<Sent>>,
    pub(super) monitor: Monitor,
    /// What this state breaks.
    pub(super) broken: Option<Property>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { scope: _, left, lock, clients, late, monitor, broken: _ } = self;
        (left, lock, clients, late, monitor).hash(hasher);
    }
}

impl World {
    pub(super) fn start(scope: &'static Scope) -> Self {
        let count = scope.clients.len();
        let clients = (0..count).map(|_| Client::default()).collect();
        let (lock, late, monitor) = (Lock::default(), Vec::new(), Monitor::new(count));
        Self { scope, left: scope.budget, lock, clients, late, monitor, broken: None }
    }

    pub(super) fn client(&mut self, index: u8) -> &mut Client {
        &mut self.clients[usize::from(index)]
    }

    /// How many messages are under way that time would delay.
    pub(super) fn under_way(&self) -> u8 {
        self.clients.iter().map(Client::load).sum()
    }

    pub(super) fn all_ended(&self) -> bool {
        let outer_ended = self.clients[0].has_ended();
        let never_starts = |index: usize| {
            let is_idle = matches!(self.clients[index].phase, Phase::Idle);
            outer_ended && is_idle && self.scope.clients[index].is_inner
        };
        let mut clients = self.clients.iter().enumerate();
        self.late.is_empty()
            && clients.all(|(index, client)| client.has_ended() || never_starts(index))
    }

    pub(super) fn is_unused(&self) -> bool {
        self.lock.is_unused_since(NOW) && !self.is_foreign()
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.lock.guard.as_ref().is_some_and(|guard| guard.value == "theirs")
    }

    /// Whether no hold is in use, so that all may be revoked at once.
    pub(super) fn are_holders_dead(&self) -> bool {
        self.lock.holds.iter().all(|hold| {
            let (client, round, _) = whose(&hold.token);
            let client = &self.clients[client];
            client.round > round || client.has_ended() || hold.renewed.is_none()
        })
    }

    /// Whether all other clients know of every holder.
    pub(super) fn are_all_told(&self) -> bool {
        let holders = (0..).zip(&self.clients).filter(|(_, client)| client.holds());
        let holders: Vec<(usize, u8)> =
            holders.map(|(index, client)| (index, client.round)).collect();
        self.clients
            .iter()
            .all(|client| client.holds() || client.has_ended() || client.knows(&holders))
    }
}
