//! What a search does: all that can happen in a state, and what each of it changes.

use super::action::Action;
use super::calls;
use super::client::{Client, Phase};
use super::lock::{overwrite, rebase};
use super::properties::broken_in;
use super::property::Property;
use super::scope::{Budget, Scope, unplayed};
use super::search::Play;
use super::time::{TICK_MILLIS, now};
use super::trace::lines_of;
use super::world::World;
use rlock::rules::Revocation;

impl Play for World {
    type Action = Action;
    const TICK: Action = Action::Tick;

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
        if let Some(difference) = calls::difference() {
            println!("{difference}");
            world.broken = Some(Property::TheScriptsAgree);
        }
        if world.broken.is_none() {
            world.broken = broken_in(&world);
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
                self.lock.guard = None;
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
                self.lock.guard = None;
            }
            Action::ForeignWrites => {
                self.left.foreign -= 1;
                self.monitor.idle = 0;
                self.monitor.all_revoked(&self.lock);
                overwrite(&mut self.lock, None);
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

    fn tick(&mut self) {
        self.left.delays -= self.under_way();
        if self.under_way() > 0 {
            self.monitor.shaken = true;
        }
        if let Err(property) = self.watch_idle_lock() {
            self.broken.get_or_insert(property);
        }
        rebase(&mut self.lock, TICK_MILLIS);
        self.monitor.tick();
        for (client, terms) in self.clients.iter_mut().zip(&self.scope.clients) {
            client.shift(terms.tick);
        }
        // Supervisors act between two ticks, before anything that happens at the next one.
        for (index, terms) in (0..).zip(&self.scope.clients) {
            self.supervise(index, now() - terms.tick);
        }
        for index in 0..self.clients.len() as u8 {
            self.act_on_time(index);
        }
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
}
