//! The world that a search plays: one lock on one server, its clients, what is under way between
//! them, and what can happen next.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::action::Action;
use super::client::{Client, Phase};
use super::connection::Sent;
use super::monitor::Monitor;
use super::properties::Property;
use super::scope::{Budget, Scope, unplayed, whose};
use super::search::Play;
use super::trace::lines_of;
use crate::values::at_millis;
use rlock::rules::Instant;
use rlock::rules::model::Lock;

/// The step in which time passes.
pub(super) const TICK: Duration = Duration::from_millis(TICK_MILLIS);
pub(super) const TICK_MILLIS: u64 = 1_000;

/// The time in every state: when time passes, all else moves back. In milliseconds.
pub(super) const NOW: u64 = 1_000_000_000;

pub(super) fn now() -> Instant {
    at_millis(NOW)
}

/// One state.
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

impl Play for World {
    type Action = Action;
    type Property = Property;
    const TICK: Action = Action::Tick;
    const STUCK: Property = Property::NothingIsStuck;

    fn begin(name: &'static str) -> Self {
        Self::start(Scope::leaked(name))
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (index, client) in (0..).zip(&self.clients) {
            client.actions(index, &mut actions);
        }
        // What runs inside a command starts only while that runs.
        let outer_runs = self.clients[0].holds();
        actions.retain(|action| match action {
            Action::Start(index) => outer_runs || !self.scope.clients[usize::from(*index)].is_inner,
            _ => true,
        });
        for (index, _) in (0..).zip(&self.late) {
            actions.extend([Action::ExecuteLate(index), Action::LoseLate(index)]);
        }
        if self.is_foreign() {
            actions.push(Action::ForeignGone);
        }
        if self.under_way() <= self.left.delays && !(self.all_ended() && self.is_unused()) {
            actions.push(Action::Tick);
        }
        self.faults(&mut actions);
        actions
    }

    fn after(&self, action: Action) -> Self {
        let mut world = self.clone();
        world.act(action);
        world.settle();
        world.make_canonical();
        if world.broken.is_none() {
            world.broken = Property::broken_in(&world);
        }
        world
    }

    fn is_end(&self) -> bool {
        self.all_ended() && self.is_unused()
    }

    fn broken(&self) -> Option<Property> {
        self.broken
    }

    fn is_fault(action: Action) -> bool {
        use Action::*;
        matches!(
            action,
            Break(_)
                | Crash(_)
                | Signal(_)
                | Revoke
                | RevokeNow
                | DeleteKey
                | ForeignWrites
                | Restart
                | Forget
                | Pause(_)
                | CutOff(_)
        )
    }

    fn unplayed(&self) -> Vec<&'static str> {
        let is_idle = |client: usize| matches!(self.clients[client].phase, Phase::Idle);
        unplayed(self.scope.name, is_idle, self.left, Budget::of)
    }

    fn describe(&self, action: Action) -> String {
        action.to_string()
    }

    fn lines(&self) -> Vec<String> {
        lines_of(self)
    }
}

impl World {
    pub(super) fn start(scope: &'static Scope) -> Self {
        let count = scope.clients.len();
        let clients = (0..count).map(|_| Client::default()).collect();
        let (lock, late, monitor) = (Lock::default(), Vec::new(), Monitor::new(count));
        Self { scope, left: scope.budget, lock, clients, late, monitor, broken: None }
    }

    fn faults(&self, actions: &mut Vec<Action>) {
        let left = &self.left;
        for (index, client) in (0..).zip(&self.clients) {
            let mut may = |left: u8, may: bool, action| {
                if left > 0 && may {
                    actions.push(action);
                }
            };
            may(left.breaks, client.awaits_server(), Action::Break(index));
            may(left.crashes, client.is_at_work(), Action::Crash(index));
            may(left.leaves, client.may_be_signaled(), Action::Signal(index));
            may(left.pauses, client.holds() && !client.paused, Action::Pause(index));
            may(left.cuts, client.is_at_work() && !client.cut, Action::CutOff(index));
        }
        let used = !self.lock.holds.is_empty() || self.lock.guard.is_some();
        let mut may = |left: u8, may: bool, action| {
            if left > 0 && may {
                actions.push(action);
            }
        };
        let foreign = self.is_foreign();
        may(left.revocations, used && !foreign, Action::Revoke);
        may(left.removals, used && !foreign && self.are_holders_dead(), Action::RevokeNow);
        may(left.deletions, self.lock.guard.is_some() && !foreign, Action::DeleteKey);
        may(left.foreign, !foreign, Action::ForeignWrites);
        may(left.restarts, true, Action::Restart);
        let told = self.are_all_told();
        may(left.losses + if told { left.told_losses } else { 0 }, used, Action::Forget);
    }

    /// Lets clients notice at once what waits for them, where it makes no difference when they do.
    fn settle(&mut self) {
        while !self.left.is_patient() {
            let ready = |client: &Client| client.reads() || client.wakes();
            match (0..).zip(&self.clients).find(|(_, client)| ready(client)) {
                Some((index, client)) if client.reads() => self.read_reply(index),
                Some((index, _)) => self.wake(index),
                None => return,
            }
        }
    }

    pub(super) fn client(&mut self, index: u8) -> &mut Client {
        &mut self.clients[usize::from(index)]
    }

    /// How many messages are under way that time would delay.
    pub(super) fn under_way(&self) -> u8 {
        self.clients.iter().map(Client::load).sum()
    }

    fn all_ended(&self) -> bool {
        let outer_ended = self.clients[0].has_ended();
        let never_starts = |index: usize| {
            let is_idle = matches!(self.clients[index].phase, Phase::Idle);
            outer_ended && is_idle && self.scope.clients[index].is_inner
        };
        let mut clients = self.clients.iter().enumerate();
        self.late.is_empty()
            && clients.all(|(index, client)| client.has_ended() || never_starts(index))
    }

    fn is_unused(&self) -> bool {
        self.lock.is_unused_since(NOW) && !self.is_foreign()
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.lock.guard.as_ref().is_some_and(|guard| guard.value == "theirs")
    }

    /// Whether no hold is in use, so that all may be revoked at once.
    fn are_holders_dead(&self) -> bool {
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
