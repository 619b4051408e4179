//! The actions of a search, and what each of them changes.

use super::monitor::Property;
use super::server::{Sent, State};
use super::world::{IO_TIMEOUT, World};
use crate::check::lock::rebase;
use crate::check::world::{TICK, TICK_MILLIS, now};

/// What can happen. Numbers stand for clients and servers, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Start(u8),
    /// A server executes the next request of a client.
    Execute(u8, u8),
    Read(u8, u8),
    /// A message wakes a client.
    Hear(u8, u8),
    /// A command ends.
    Finish(u8),
    /// A short pause of a client is over.
    Hurry(u8),
    /// A server executes the next late request of a client.
    ExecuteLate(u8, u8),
    LoseLate(u8, u8),
    Thaw(u8),
    /// A second passes.
    Tick,

    // Faults and signals.
    Break(u8, u8),
    Crash(u8),
    Signal(u8),
    Die(u8),
    Freeze(u8),
    Forget(u8),
}

impl World {
    pub(super) fn act(&mut self, action: Action) {
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
            for line in &mut server.lines {
                let times = line.requests.iter_mut().filter_map(|sent| sent.awaited.as_mut());
                let times = times.chain(line.listening.as_mut().map(|(_, until)| until));
                let run = line.reply.as_mut().and_then(|reply| reply.since.as_mut());
                times.chain(run).for_each(|time| *time = *time - TICK);
            }
        }
        self.clients.iter_mut().for_each(|client| client.shift(TICK));
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
}
