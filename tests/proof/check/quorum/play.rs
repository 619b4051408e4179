//! What can happen next in a world with a quorum, and what each of it changes.

use std::time::Duration;

use super::client::{Client, Phase};
use super::properties::broken_in;
use super::server::{AHEAD, Line, Promoted, Replica, SERVERS, Sent, Server, State};
use super::trace::{client_line, server_line};
use super::world::{IO_TIMEOUT, Monitor, World};
use crate::check::action::{Action, Faults, Turn};
use crate::check::lock::rebase;
use crate::check::property::Property;
use crate::check::scope::Scope;
use crate::check::search::{Course, Play};
use crate::check::shift::Shift;
use crate::check::time::{NOW, TICK, TICK_MILLIS, now};
use crate::check::trace::letter;

/// Pauses up to this long may end before a message arrives.
const SHORT: Duration = Duration::from_millis(100);

impl Play for World {
    const FAULTS: Faults = &[
        ('b', "the connection of {client} to server {server} breaks; its requests arrive twice"),
        ('c', "{client} dies"),
        ('l', "a signal ends the wait of {client}"),
        ('k', "server {server} dies"),
        ('z', "server {server} freezes until it thaws"),
        ('f', "server {server} restarts without its data"),
        ('p', "the replica of server {server} stops following"),
        ('q', "the replica of server {server} stops following; nothing will show its promotion"),
        ('m', "the replica of server {server} stops following; holders will not leave the master"),
        ('w', "server {server} loses its data, but keeps running"),
        ('a', "the clock of server {server} is set a second ahead"),
        ('e', "the clock of server {server} is set back a second"),
        ('D', "a server is dead"),
        ('Z', "a server is frozen"),
        ('A', "the clock of a server is far ahead"),
    ];

    fn start(scope: &'static Scope) -> Self {
        let count = scope.clients.len();
        // Old enough for any lease.
        let since = now() - 10 * TICK;
        let [dead, ahead, frozen] =
            ['D', 'A', 'Z'].map(|letter| usize::from(scope.budget.of(letter)));
        let server = |member| {
            let state = match member {
                _ if member < dead => State::Dead,
                _ if member >= SERVERS - frozen => State::Frozen,
                _ => State::Up,
            };
            let is_ahead = (dead..dead + ahead).contains(&member);
            let clock = if is_ahead { NOW + AHEAD.as_millis() as u64 } else { NOW };
            let lines = vec![Line::default(); count];
            let (lock, promoted, replica, old) = Default::default();
            Server { state, clock, lock, since, promoted, replica, old, lines }
        };
        Self {
            course: Course::new(scope),
            servers: (0..SERVERS).map(server).collect(),
            clients: vec![Client::default(); count],
            monitor: Monitor {
                floors: vec![0; count],
                older: vec![0; count],
                ..Default::default()
            },
        }
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }

    fn turns(&self) -> Vec<Turn> {
        use Action::*;
        let mut turns = Vec::new();
        for (index, client) in self.clients.iter().enumerate() {
            let pauses = client.pauses_for_less_than(SHORT)
                || self.is_in_a_hurry(index) && self.load(index) == 0;
            let client_turns = [
                (Start, self.may_start(index)),
                (Finish, client.holds()),
                (TimeOut, pauses && !client.rests()),
                (Fault('c'), client.is_acquiring() || client.holds()),
                (Fault('l'), client.is_acquiring()),
            ];
            turns.extend(Turn::possible(index, 0, client_turns));
            for (member, server) in self.servers.iter().enumerate() {
                let (line, is_up) = (&server.lines[index], server.is_up());
                let is_asked = is_up && !line.requests.is_empty();
                let line_turns = [
                    (Execute, is_asked),
                    (Read, client.reads() && line.reply.is_some()),
                    (Wake, client.reads() && server.hears(index)),
                    (ExecuteLate, is_up && !line.late.is_empty()),
                    (LoseLate, !line.late.is_empty()),
                    (Fault('b'), is_asked),
                ];
                turns.extend(Turn::possible(index, member, line_turns));
            }
        }
        for (member, server) in self.servers.iter().enumerate() {
            let may_thaw = server.state == State::Frozen && self.course.scope.budget.of('z') > 0;
            let server_turns = [
                (Thaw, may_thaw),
                (FailOver, server.is_up() && server.replica.is_some()),
                (Fault('k'), server.is_up()),
                (Fault('z'), server.is_up()),
                (Fault('f'), server.is_up()),
                (Fault('p'), server.is_up() && server.replica.is_none()),
                (Fault('q'), server.is_up() && server.replica.is_none()),
                (Fault('m'), server.is_up() && server.replica.is_none()),
                (Fault('w'), server.is_up()),
                (Fault('a'), server.is_up()),
                (Fault('e'), server.is_up()),
            ];
            turns.extend(Turn::possible(0, member, server_turns));
        }
        turns
    }

    fn under_way(&self) -> u8 {
        let pauses =
            |client: &Client| u8::from(client.pauses_for_less_than(SHORT) && !client.rests());
        (0..).zip(&self.clients).map(|(index, client)| self.load(index) + pauses(client)).sum()
    }

    fn act(&mut self, turn: Turn) {
        let (index, member) = (turn.client(), turn.server());
        let request = &self.course.scope.clients[index].request;
        let server = &mut self.servers[member];
        let line = &mut server.lines[index];
        let mut revives = false;
        match turn.action {
            Action::Start => self.start_client(index),
            Action::Execute => {
                let sent = line.requests.remove(0);
                revives = server.execute(index, request, &sent);
            }
            Action::Read => self.read_reply(index, member),
            Action::Wake => self.hear(index, member),
            Action::Finish => self.finish(index),
            Action::TimeOut => {
                if let Some(until) = self.clients[index].until() {
                    self.clients[index].shift(until.since(now()));
                    self.act_on_time(index);
                }
            }
            Action::ExecuteLate => {
                let sent = line.late.remove(0);
                revives = server.execute(index, request, &sent);
            }
            Action::LoseLate => line.late.clear(),
            Action::Thaw => server.state = State::Up,
            Action::Fault('b') => {
                let requests = line.requests.iter().cloned();
                line.late = requests.map(|sent| Sent { awaited: None, ..sent }).collect();
            }
            Action::Fault('c') => self.crash(index),
            Action::Fault('l') => self.signal(index),
            Action::Fault('k') => {
                server.state = State::Dead;
                server.break_off();
                server.lock = Default::default();
            }
            Action::Fault('z') => server.state = State::Frozen,
            Action::Fault('f') => {
                (server.lock, server.since) = (Default::default(), now());
                server.promoted = Promoted::No;
                server.break_off();
            }
            Action::Fault(fault @ ('p' | 'q' | 'm')) => {
                server.replica = Some(Replica { lock: server.lock.clone(), fault });
            }
            Action::FailOver => server.fail_over(),
            Action::Fault('w') => server.lock = Default::default(),
            Action::Fault('a') => server.clock += TICK_MILLIS,
            Action::Fault('e') => server.clock -= TICK_MILLIS,
            Action::Tick => self.tick(),
            action => panic!("{action:?} does not occur with a quorum"),
        }
        if revives {
            self.course.breaks(Property::EachProvesItsOwnLife);
        }
    }

    fn settle(&mut self) -> Option<Property> {
        self.settle_times();
        self.rank_fences();
        broken_in(self)
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

    fn has_begun(&self, client: usize) -> bool {
        !matches!(self.clients[client].phase, Phase::Idle)
    }

    fn lines(&self) -> Vec<String> {
        let clients = self.clients.iter().enumerate();
        let clients =
            clients.map(|(index, client)| format!("{}: {}", letter(index), client_line(client)));
        let servers = (1..).zip(&self.servers);
        let servers =
            servers.map(|(number, server)| format!("server {number}: {}", server_line(server)));
        clients.chain(servers).collect()
    }
}

impl World {
    fn tick(&mut self) {
        if let Err(property) = self.watch_idle_lock() {
            self.course.breaks(property);
        }
        let clients = &self.course.scope.clients;
        for server in &mut self.servers {
            server.locks().for_each(|lock| rebase(lock, TICK_MILLIS));
            server.since.shift(TICK);
            for (line, terms) in server.lines.iter_mut().zip(clients) {
                line.shift(terms.tick);
                if let Some(reply) = &mut line.reply {
                    reply.since.shift(TICK);
                }
            }
        }
        for (client, terms) in self.clients.iter_mut().zip(clients) {
            client.shift(terms.tick);
        }
        // What ends with its lease ends before anything that happens now.
        let all = 0..self.clients.len();
        let (holders, others): (Vec<_>, Vec<_>) =
            all.partition(|index| self.clients[*index].holds());
        holders.into_iter().for_each(|index| self.act_on_time(index));
        for server in &mut self.servers {
            let is_up = server.is_up();
            server.lines.iter_mut().for_each(|line| line.time_out(IO_TIMEOUT, is_up));
        }
        others.into_iter().for_each(|index| self.act_on_time(index));
    }

    /// How many messages from and to a client time would delay.
    fn load(&self, index: usize) -> u8 {
        let reads = self.clients[index].reads();
        let loads = self.servers.iter().map(|server| server.load(index, reads));
        loads.sum()
    }

    fn may_start(&self, index: usize) -> bool {
        let had_lock = |client: &Client| client.holds() || client.has_ended();
        let waits =
            self.course.scope.clients[index].has('t') && !had_lock(&self.clients[index - 1]);
        matches!(self.clients[index].phase, Phase::Idle) && !waits
    }
}
