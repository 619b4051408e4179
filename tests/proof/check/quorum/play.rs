//! What a search does: all that can happen in a state, and what each of it changes.

use super::action::Action;
use super::client::{Client, Doing, Phase};
use super::properties::broken_in;
use super::scope::{Budget, SERVERS, Scope};
use super::server::{Sent, Server, State};
use super::trace::{describe, lines_of};
use super::world::{IO_TIMEOUT, SHORT, World};
use crate::check::calls;
use crate::check::lock::rebase;
use crate::check::property::Property;
use crate::check::scope::unplayed;
use crate::check::search::Play;
use crate::check::time::{TICK, TICK_MILLIS, now};

impl Play for World {
    type Action = Action;
    const TICK: Action = Action::Tick;

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
                        || client.is_in_a_hurry(self.scope.clients[usize::from(index)].tick)
                            && self.load(index.into()) == 0 =>
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
            if server.state == State::Frozen && self.scope.budget.freezes > 0 {
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
        if let Some(difference) = calls::difference() {
            println!("{difference}");
            world.broken = Some(Property::TheScriptsAgree);
        }
        world.broken = broken_in(&world).or(world.broken);
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
        let left = Budget { dead: 0, frozen: 0, ahead: 0, refusals: 0, ..self.left };
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
    fn act(&mut self, action: Action) {
        match action {
            Action::Start(client) => self.start_client(client.into()),
            Action::Execute(client, member) => {
                let line = &mut self.servers[usize::from(member)].lines[usize::from(client)];
                let sent = line.requests.remove(0);
                self.execute(client.into(), member.into(), &sent);
            }
            Action::Read(client, member) => self.read_reply(client.into(), member.into()),
            Action::Hear(client, member) => self.hear(client.into(), member.into()),
            Action::Finish(client) => self.finish(client.into()),
            Action::Hurry(client) => {
                let index = usize::from(client);
                if let Some(until) = self.clients[index].until() {
                    self.clients[index].shift(until.since(now()));
                    self.act_on_time(index);
                }
            }
            Action::ExecuteLate(client, member) => {
                let line = &mut self.servers[usize::from(member)].lines[usize::from(client)];
                let sent = line.late.remove(0);
                self.execute(client.into(), member.into(), &sent);
            }
            Action::LoseLate(client, member) => {
                self.servers[usize::from(member)].lines[usize::from(client)].late.clear();
            }
            Action::Thaw(member) => self.servers[usize::from(member)].state = State::Up,
            Action::Tick => self.tick(),
            Action::Break(client, member) => {
                self.left.breaks -= 1;
                let line = &mut self.servers[usize::from(member)].lines[usize::from(client)];
                let late = line.requests.iter().cloned();
                line.late = late
                    .map(|mut sent| {
                        sent.awaited = None;
                        sent
                    })
                    .collect();
            }
            Action::Crash(client) => {
                self.left.crashes -= 1;
                self.crash(client.into());
            }
            Action::Signal(client) => {
                self.left.leaves -= 1;
                self.signal(client.into());
            }
            Action::Die(member) => {
                self.left.deaths -= 1;
                let server = &mut self.servers[usize::from(member)];
                server.state = State::Dead;
                server.break_off();
                server.lock = Default::default();
            }
            Action::Freeze(member) => {
                self.left.freezes -= 1;
                self.servers[usize::from(member)].state = State::Frozen;
            }
            Action::Forget(member) => {
                self.left.losses -= 1;
                let server = &mut self.servers[usize::from(member)];
                (server.lock, server.since) = (Default::default(), now());
                server.break_off();
            }
        }
    }

    fn execute(&mut self, client: usize, member: usize, sent: &Sent) {
        let request = &self.scope.clients[client].request;
        if self.servers[member].execute(client, request, sent) {
            self.broken.get_or_insert(Property::EachProvesItsOwnLife);
        }
    }

    fn tick(&mut self) {
        self.left.delays -= self.under_way();
        if let Err(property) = self.watch_idle_lock() {
            self.broken.get_or_insert(property);
        }
        for server in &mut self.servers {
            rebase(&mut server.lock, TICK_MILLIS);
            server.since = server.since - TICK;
            for (line, terms) in server.lines.iter_mut().zip(&self.scope.clients) {
                let times = line.requests.iter_mut().filter_map(|sent| sent.awaited.as_mut());
                let times = times.chain(line.listening.as_mut().map(|(_, until)| until));
                times.for_each(|time| *time = *time - terms.tick);
                let run = line.reply.as_mut().and_then(|reply| reply.since.as_mut());
                run.into_iter().for_each(|since| *since = *since - TICK);
            }
        }
        for (client, terms) in self.clients.iter_mut().zip(&self.scope.clients) {
            client.shift(terms.tick);
        }
        // What ends with its lease ends before anything that happens now.
        for index in 0..self.clients.len() {
            if self.clients[index].holds() {
                self.act_on_time(index);
            }
        }
        for server in &mut self.servers {
            let is_up = server.is_up();
            server.lines.iter_mut().for_each(|line| line.time_out(IO_TIMEOUT, is_up));
        }
        for index in 0..self.clients.len() {
            if !self.clients[index].holds() {
                self.act_on_time(index);
            }
        }
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

    /// Clients that differ only in their tokens begin in order: the others would play the same.
    fn may_start(&self, index: u8) -> bool {
        let Some(before) = usize::from(index).checked_sub(1) else { return true };
        let (client, terms) = (&self.clients[before], &self.scope.clients[before..=before + 1]);
        let is_alike = terms[0].word == terms[1].word;
        let had_lock = client.holds() || client.has_ended();
        (had_lock || !terms[1].is_later) && !(is_alike && matches!(client.phase, Phase::Idle))
    }
}
