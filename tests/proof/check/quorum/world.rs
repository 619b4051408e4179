//! The world that a search plays: one lock on three servers, its clients, what is under way between
//! them, and what can happen next.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::action::Action;
use super::client::{Client, Doing, Phase};
use super::monitor::{Monitor, Property};
use super::scope::{Budget, SERVERS, Scope};
use super::server::{AHEAD, Server, State};
use super::trace::{describe, lines_of};
use crate::check::scope::unplayed;
use crate::check::search::Play;
use crate::check::world::{NOW, TICK, now};

/// How long a client awaits a reply.
pub(super) const IO_TIMEOUT: Duration = Duration::from_secs(2);

/// Pauses up to this long may end before a message arrives.
const SHORT: Duration = Duration::from_millis(100);

/// One state.
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
            match client.phase {
                Phase::Idle if !self.may_start(index) => {}
                Phase::Idle => actions.push(Action::Start(index)),
                Phase::Holding(..) => actions.push(Action::Finish(index)),
                Phase::Acquiring(_, _, Doing::Attempt(..) | Doing::Sleep(_))
                    if client.is_in_a_hurry(SHORT)
                        || client.is_in_a_hurry(TICK) && self.load(index.into()) == 0 =>
                {
                    actions.push(Action::Hurry(index));
                }
                _ => {}
            }
            for (member, server) in (0..).zip(&self.servers) {
                let line = &server.lines[usize::from(index)];
                if server.is_up() && !line.requests.is_empty() {
                    actions.push(Action::Execute(index, member));
                }
                if client.reads() && line.reply.is_some() {
                    actions.push(Action::Read(index, member));
                }
                if client.reads() && server.hears(usize::from(index)) {
                    actions.push(Action::Hear(index, member));
                }
                if server.is_up() && !line.late.is_empty() {
                    actions.push(Action::ExecuteLate(index, member));
                }
                if !line.late.is_empty() {
                    actions.push(Action::LoseLate(index, member));
                }
            }
        }
        for (member, server) in (0..).zip(&self.servers) {
            if server.state == State::Frozen {
                actions.push(Action::Thaw(member));
            }
        }
        if self.under_way() <= self.left.delays && !self.is_end() {
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
        world.broken = Property::broken_in(&world).or(world.broken);
        world
    }

    fn broken(&self) -> Option<Property> {
        self.broken
    }

    fn is_end(&self) -> bool {
        let quiet = |server: &Server| {
            let is_quiet = server
                .lines
                .iter()
                .all(|line| line.late.is_empty() && (line.requests.is_empty() || !server.is_up()));
            is_quiet && (server.state == State::Dead || server.lock.is_unused_since(server.clock))
        };
        self.clients.iter().all(Client::has_ended) && self.servers.iter().all(quiet)
    }

    fn is_fault(action: Action) -> bool {
        use Action::*;
        matches!(action, Break(..) | Crash(_) | Signal(_) | Die(_) | Freeze(_) | Forget(_))
    }

    fn unplayed(&self) -> Vec<&'static str> {
        let is_idle = |client: usize| matches!(self.clients[client].phase, Phase::Idle);
        // These are so from the start.
        let left = Budget { dead: 0, ahead: 0, refusals: 0, ..self.left };
        unplayed(self.scope.name, is_idle, left, Budget::of)
    }

    fn describe(&self, action: Action) -> String {
        describe(self, action)
    }

    fn lines(&self) -> Vec<String> {
        lines_of(self)
    }
}

impl World {
    pub(super) fn start(scope: &'static Scope) -> Self {
        let count = scope.clients.len();
        // Old enough for any lease.
        let since = now() - 10 * TICK;
        let server = |member| {
            let Budget { dead, refusals, ahead, .. } = scope.budget;
            let (dead, refusals) = (usize::from(dead), usize::from(dead + refusals));
            let state = match member {
                _ if member < dead => State::Dead,
                _ if member < refusals => State::Refusing,
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

    fn faults(&self, actions: &mut Vec<Action>) {
        let left = &self.left;
        for (index, client) in (0..).zip(&self.clients) {
            if left.crashes > 0 && (client.is_acquiring() || client.holds()) {
                actions.push(Action::Crash(index));
            }
            if left.leaves > 0 && client.is_acquiring() {
                actions.push(Action::Signal(index));
            }
            for (member, server) in (0..).zip(&self.servers) {
                let line = &server.lines[usize::from(index)];
                if left.breaks > 0 && server.is_up() && !line.requests.is_empty() {
                    actions.push(Action::Break(index, member));
                }
            }
        }
        for (member, server) in (0..).zip(&self.servers) {
            if !server.is_up() {
                continue;
            }
            if left.deaths > 0 {
                actions.push(Action::Die(member));
            }
            if left.freezes > 0 {
                actions.push(Action::Freeze(member));
            }
            if left.losses > 0 {
                actions.push(Action::Forget(member));
            }
        }
    }

    /// Lets clients read at once what has arrived for them, if it makes no difference when they do.
    fn settle(&mut self) {
        while !self.is_patient() {
            let ready = (0..self.clients.len()).find_map(|index| {
                let reads = self.clients[index].reads();
                (0..SERVERS).find_map(|member| {
                    let server = &self.servers[member];
                    match () {
                        () if reads && server.lines[index].reply.is_some() => {
                            Some((index, member, true))
                        }
                        () if reads && server.hears(index) => Some((index, member, false)),
                        () => None,
                    }
                })
            });
            match ready {
                Some((index, member, true)) => self.read_reply(index, member),
                Some((index, member, false)) => self.hear(index, member),
                None => return,
            }
        }
    }

    /// Whether replies may be late.
    fn is_patient(&self) -> bool {
        self.scope.budget.delays > 0
    }

    /// How many messages are under way that time would delay.
    pub(super) fn under_way(&self) -> u8 {
        (0..self.clients.len()).map(|index| self.load(index)).sum()
    }

    /// How many of them are a client's.
    fn load(&self, index: usize) -> u8 {
        let reads = self.clients[index].reads();
        let loads = self.servers.iter().map(|server| server.load(index, reads));
        loads.sum()
    }

    fn may_start(&self, index: u8) -> bool {
        let index = usize::from(index);
        let had_lock = |client: &Client| client.holds() || client.has_ended();
        !self.scope.clients[index].is_later || had_lock(&self.clients[index - 1])
    }
}

/// The ID of the present run of a server.
pub(super) fn run_id(member: usize) -> String {
    member.to_string()
}
