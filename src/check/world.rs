//! The world that a search plays: one lock on one server, its clients, what is under way between
//! them, and what can happen next.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::client::{Client, Phase};
use super::connection::{Reply, Sent, What};
use super::monitor::{Call, Fact, Monitor, facts};
use super::properties::Property;
use super::scope::{Budget, Scope, whose};
use super::search::Play;
use super::trace::lines_of;
use crate::lock::view::Outcome;
use crate::store::model::Lock;
use crate::store::{Answer, Request, Revocation, Verdict};
use crate::system::clock::Instant;

/// What passes at once.
pub(super) const TICK: Duration = Duration::from_millis(TICK_MILLIS);
pub(super) const TICK_MILLIS: u64 = 1_000;

/// The time in every state: when time passes, all else moves back. In milliseconds.
pub(super) const NOW: u64 = 1_000_000_000;

pub(super) fn now() -> Instant {
    Instant::at_millis(NOW)
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

/// What can happen. Numbers stand for clients, or for old connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A client asks for the lock.
    Start(u8),
    /// The server executes the next request on a connection.
    Execute(u8),
    /// The client reads its reply.
    Read(u8),
    /// A message wakes a sleeping waiter.
    Wake(u8),
    /// A command ends.
    Finish(u8),
    /// A client stops waiting for a reply that is late.
    TimeOut(u8),
    /// The server executes the next request on an old connection.
    ExecuteLate(u8),
    /// The rest of an old connection is lost.
    LoseLate(u8),
    /// A second passes.
    Tick,
    Resume(u8),
    /// A client can reach the server again.
    Reconnect(u8),
    /// Another tool deletes its key.
    ForeignGone,

    // Faults, and what people do.
    Break(u8),
    Crash(u8),
    Signal(u8),
    Revoke,
    RevokeNow,
    DeleteKey,
    ForeignWrites,
    Restart,
    /// The server restarts without its data.
    Forget,
    Pause(u8),
    CutOff(u8),
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

    fn act(&mut self, action: Action) {
        match action {
            Action::Start(client) => self.start_client(client),
            Action::Execute(client) => {
                let (sent, awaited) = self.client(client).connection.next_request();
                let reply = self.execute(&sent);
                if awaited {
                    self.client(client).connection.reply = Some(reply);
                }
            }
            Action::Read(client) => self.read_reply(client),
            Action::Wake(client) => self.wake(client),
            Action::Finish(client) => self.finish(client),
            Action::TimeOut(client) => self.time_out(client),
            Action::ExecuteLate(index) => {
                let sent = self.late[usize::from(index)].remove(0);
                self.execute(&sent);
            }
            Action::LoseLate(index) => {
                self.late.remove(usize::from(index));
            }
            Action::Tick => self.tick(),
            Action::Resume(client) => self.resume(client),
            Action::Reconnect(client) => self.client(client).cut = false,
            Action::ForeignGone => {
                self.monitor.shaken = true;
                self.lock.lose_guard();
            }
            Action::Break(client) => {
                self.left.breaks -= 1;
                self.monitor.shaken = true;
                self.break_off(client);
            }
            Action::Crash(client) => {
                self.left.crashes -= 1;
                self.crash(client);
            }
            Action::Signal(client) => {
                self.left.leaves -= 1;
                self.signal(client);
            }
            Action::Revoke => {
                self.left.revocations -= 1;
                self.revoke(Revocation::Graceful);
            }
            Action::RevokeNow => {
                self.left.removals -= 1;
                self.revoke(Revocation::Now);
            }
            Action::DeleteKey => {
                self.left.deletions -= 1;
                self.monitor.all_revoked(&self.lock);
                self.lock.lose_guard();
            }
            Action::ForeignWrites => {
                self.left.foreign -= 1;
                self.monitor.idle = 0;
                self.monitor.all_revoked(&self.lock);
                self.lock.overwrite(None);
            }
            Action::Restart => {
                self.left.restarts -= 1;
                self.restart();
            }
            Action::Forget => self.forget(),
            Action::Pause(client) => {
                self.left.pauses -= 1;
                self.client(client).paused = true;
            }
            Action::CutOff(client) => {
                self.left.cuts -= 1;
                self.monitor.idle = 0;
                self.monitor.shaken = true;
                self.client(client).cut = true;
                self.break_off(client);
            }
        }
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

    /// The server executes a request.
    fn execute(&mut self, sent: &Sent) -> Reply {
        let terms = &self.scope.clients[usize::from(sent.client)];
        let request = &terms.requests[usize::from(sent.round)];
        let (token, lock) = (&request.token, &mut self.lock);
        let before: Vec<Fact> = facts(lock).collect();
        let reply = match &sent.what {
            What::Acquire { attempt, seen, arrival } => {
                let request = Request { arrival: *arrival, ..request.clone() };
                Reply::Verdict(lock.acquire(&request, *attempt, seen, NOW))
            }
            What::Renew => Reply::Renewal(lock.renew(token, Some(request.ttl), NOW)),
            What::Release => Reply::Release(lock.release(token, Outcome::Unknown, NOW)),
            What::Leave => {
                lock.leave(token, request.ttl, NOW);
                Reply::Left
            }
        };
        let is_granted = matches!(reply, Reply::Verdict(Verdict::Answer(Answer::Granted { .. })));
        self.judge(&before, Some(sent), Some(&reply));
        self.deliver_mail();
        if is_granted || sent.what == What::Leave {
            let client = self.client(sent.client);
            client.mail &= client.round != sent.round;
        }
        reply
    }

    fn revoke(&mut self, revocation: Revocation) {
        let before: Vec<Fact> = facts(&self.lock).collect();
        self.monitor.all_revoked(&self.lock);
        self.lock.revoke(revocation, "operator", NOW);
        self.judge(&before, None, None);
        self.deliver_mail();
    }

    /// Judges a call of the server.
    fn judge(&mut self, before: &[Fact], sent: Option<&Sent>, reply: Option<&Reply>) {
        let Self { scope, clients, lock: after, monitor, .. } = self;
        let caller = sent.map(|sent| (usize::from(sent.client), sent.round));
        let is_alive = caller.is_none_or(|(client, round)| {
            clients[client].round == round && !clients[client].has_ended()
        });
        let call = Call { scope, caller, is_alive, before, after };
        if let Err(property) = monitor.executed(&call, sent, reply) {
            self.broken.get_or_insert(property);
        }
    }

    /// Puts what the last call has sent into mailboxes.
    fn deliver_mail(&mut self) {
        for mail in self.lock.take_mail() {
            let (client, round, _) = whose(&mail.token);
            if self.clients[client].round == round {
                self.clients[client].mail = true;
            }
        }
    }

    fn restart(&mut self) {
        self.monitor.shaken = true;
        // What the old process had not executed is lost with it.
        self.late.clear();
        for index in 0..self.clients.len() as u8 {
            self.client(index).connection.requests.clear();
            self.break_off(index);
        }
    }

    fn forget(&mut self) {
        match self.left.losses {
            0 => self.left.told_losses -= 1,
            _ => self.left.losses -= 1,
        }
        let told = self.are_all_told();
        self.lock = Lock::default();
        self.clients.iter_mut().for_each(|client| client.mail = false);
        self.monitor.forgotten(told);
        self.restart();
    }

    fn tick(&mut self) {
        self.left.delays -= self.under_way();
        if self.under_way() > 0 {
            self.monitor.shaken = true;
        }
        if let Err(property) = self.watch_idle_lock() {
            self.broken.get_or_insert(property);
        }
        self.lock.rebase(TICK_MILLIS);
        self.monitor.tick();
        for client in &mut self.clients {
            client.shift(TICK);
        }
        // Supervisors act between two ticks, before anything that happens at the next one.
        for index in 0..self.clients.len() as u8 {
            self.supervise(index, now() - TICK);
        }
        for index in 0..self.clients.len() as u8 {
            self.act_on_time(index);
        }
    }

    pub(super) fn client(&mut self, index: u8) -> &mut Client {
        &mut self.clients[usize::from(index)]
    }

    /// How many messages are under way that time would delay.
    fn under_way(&self) -> u8 {
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
    fn are_all_told(&self) -> bool {
        let holders = (0..).zip(&self.clients).filter(|(_, client)| client.holds());
        let holders: Vec<(usize, u8)> =
            holders.map(|(index, client)| (index, client.round)).collect();
        self.clients
            .iter()
            .all(|client| client.holds() || client.has_ended() || client.knows(&holders))
    }
}
