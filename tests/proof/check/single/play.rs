//! What can happen next in a world with one server, and what each of it changes.

use super::client::{Client, Phase};
use super::monitor::Monitor;
use super::properties::{broken_in, do_rivals_run};
use super::trace::client_line;
use super::world::World;
use crate::check::action::{Action, Faults, Turn};
use crate::check::lock::rebase;
use crate::check::property::Property;
use crate::check::scope::Scope;
use crate::check::search::{Course, Play};
use crate::check::time::{NOW, TICK_MILLIS, now};
use crate::check::trace::{letter, shown};
use rlock::rules::Revocation;
use rlock::rules::model::Lock;
use rlock::rules::model::lock::Guard;

impl Play for World {
    const FAULTS: Faults = &[
        ('d', "a message crosses a tick"),
        ('b', "the connection of {client} breaks; what it carries is lost or arrives late"),
        ('c', "{client} dies"),
        ('l', "a signal ends the wait of {client}"),
        ('v', "an operator revokes all holds"),
        ('w', "an operator revokes all holds with --now"),
        ('k', "another tool writes the key"),
        ('r', "the server restarts with its data"),
        ('f', "the server restarts without its data"),
        ('a', "the server's clock is set a second ahead"),
        ('e', "the server's clock is set back a second"),
        ('p', "{client} is paused"),
        ('n', "{client} cannot reach the server for a while"),
        ('y', "the name leads to a replica, whose data may lag"),
        ('t', "a replica begins to lag, and may take over"),
    ];

    fn start(scope: &'static Scope) -> Self {
        let count = scope.clients.len();
        Self {
            course: Course::new(scope),
            // A replica that lacks all has another generation, or none.
            lock: if scope.budget.of('t') > 0 { used_before() } else { Lock::default() },
            clock: NOW,
            is_replica: false,
            lagging: None,
            clients: vec![Client::default(); count],
            monitor: Monitor::new(count),
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
            // What runs inside a command starts only while that runs.
            let is_inner = self.course.scope.clients[index].has('i');
            let may_start =
                matches!(client.phase, Phase::Idle) && (!is_inner || self.clients[0].holds());
            let has_timed_out = client.connection.has_timed_out(now());
            let client_turns = [
                (Execute, !client.connection.requests.is_empty()),
                (Reconnect, client.cut),
                (Resume, client.paused),
                (Read, client.reads()),
                (Wake, client.wakes()),
                (TimeOut, has_timed_out && !client.paused),
                (Start, may_start),
                (Finish, client.holds() && !client.paused),
                (Fault('b'), client.awaits_server()),
                (Fault('c'), client.is_at_work()),
                (Fault('l'), client.waits() && !client.signaled),
                (Fault('p'), client.holds() && !client.paused),
                (Fault('n'), client.is_at_work() && !client.cut),
            ];
            turns.extend(Turn::possible(index, 0, client_turns));
            for (old, requests) in client.connection.late.iter().enumerate() {
                let is_any = !requests.is_empty();
                let either = [(ExecuteLate, is_any), (LoseLate, is_any)];
                turns.extend(Turn::possible(index, old, either));
            }
        }
        let is_used = !self.lock.holds.is_empty() || self.lock.guard.is_some();
        let is_foreign = self.is_foreign();
        let is_ours = is_used && !is_foreign;
        let lacks_some = self.lagging.as_ref().is_some_and(|lagging| *lagging != self.lock);
        let server_turns = [
            (ToolLeaves, is_foreign),
            (Promote, self.is_replica),
            (FailOver, lacks_some),
            (Fault('t'), self.lagging.is_none()),
            (Fault('y'), !self.is_replica),
            (Fault('v'), is_ours),
            (Fault('w'), is_ours),
            (Fault('k'), !is_foreign),
            (Fault('a'), true),
            (Fault('e'), true),
            (Fault('r'), true),
            (Fault('f'), is_used),
        ];
        turns.extend(Turn::possible(0, 0, server_turns));
        turns
    }

    fn under_way(&self) -> u8 {
        self.clients.iter().map(Client::load).sum()
    }

    fn act(&mut self, turn: Turn) {
        let (index, old) = (turn.client(), turn.server());
        match turn.action {
            Action::Start => self.start_client(index),
            Action::Execute => {
                let (sent, awaited) = self.clients[index].connection.next_request();
                let reply = self.execute(index, &sent);
                if awaited {
                    self.clients[index].connection.reply = Some(reply);
                }
            }
            Action::Read => self.read_reply(index),
            Action::Wake => self.wake(index),
            Action::Finish => self.end_command(index, now()),
            Action::TimeOut => self.time_out(index),
            Action::ExecuteLate => {
                let sent = self.clients[index].connection.late[old].remove(0);
                self.execute(index, &sent);
            }
            Action::LoseLate => drop(self.clients[index].connection.late.remove(old)),
            Action::Resume => self.resume(index),
            Action::Reconnect => self.clients[index].cut = false,
            Action::ToolLeaves => {
                self.monitor.shaken = true;
                self.lock.guard = None;
            }
            Action::Fault('b') => {
                self.monitor.shaken = true;
                self.break_off(index);
            }
            Action::Fault('c') => self.crash(index),
            Action::Fault('l') => self.signal(index),
            Action::Fault('v') => self.revoke(Revocation::Graceful),
            Action::Fault('w') => self.revoke(Revocation::Now),
            Action::Fault('k') => {
                self.monitor.idle = 0;
                self.monitor.all_revoked(&self.lock, self.clock);
                self.lock.guard = Some(Guard { value: "theirs".into(), until: None });
            }
            Action::Fault('a') => {
                self.clock += TICK_MILLIS;
                self.monitor.clock_set_ahead();
            }
            Action::Fault('e') => self.clock -= TICK_MILLIS,
            Action::Fault('r') => self.restart(),
            Action::Fault('f') => {
                self.monitor.forgotten(self.are_all_told());
                self.restart_with(Lock::default());
            }
            Action::Fault('p') => self.clients[index].paused = true,
            Action::Fault('n') => {
                self.monitor.idle = 0;
                self.monitor.shaken = true;
                self.clients[index].cut = true;
                self.break_off(index);
            }
            Action::Fault('y') => {
                self.monitor.idle = 0;
                self.monitor.shaken = true;
                self.is_replica = true;
                // A server ends all sleeps when it becomes a replica.
                let sleepers = (0..self.clients.len()).filter(|it| self.clients[*it].is_asleep());
                sleepers.collect::<Vec<_>>().into_iter().for_each(|it| self.break_off(it));
            }
            Action::Promote => self.is_replica = false,
            Action::Fault('t') => self.lagging = Some(self.lock.clone()),
            Action::FailOver => self.take_over(),
            Action::Tick => self.tick(),
            action => panic!("{action:?} does not occur with one server"),
        }
    }

    fn is_patient(&self) -> bool {
        self.course.left.of_all("dblrfpnyt") > 0 || self.lagging.is_some()
    }

    fn settle(&mut self) -> Option<Property> {
        self.settle_times();
        self.renumber_attempts();
        broken_in(self)
    }

    fn is_end(&self) -> bool {
        let outer_ended = self.clients[0].has_ended();
        let never_starts = |index: usize| {
            let is_idle = matches!(self.clients[index].phase, Phase::Idle);
            outer_ended && is_idle && self.course.scope.clients[index].has('i')
        };
        let mut clients = self.clients.iter().enumerate();
        clients.all(|(index, client)| {
            client.connection.late.is_empty() && (client.has_ended() || never_starts(index))
        }) && self.lock.is_unused_since(self.clock)
            && !self.is_foreign()
    }

    fn has_begun(&self, client: usize) -> bool {
        !matches!(self.clients[client].phase, Phase::Idle)
    }

    fn lines(&self) -> Vec<String> {
        let clients = self.clients.iter().enumerate();
        let clients =
            clients.map(|(index, client)| format!("{}: {}", letter(index), client_line(client)));
        clients.chain([format!("server: {}", shown(&self.lock, self.clock))]).collect()
    }
}

impl World {
    fn tick(&mut self) {
        if self.under_way() > 0 {
            self.monitor.shaken = true;
        }
        if let Err(property) = self.watch_idle_lock() {
            self.course.breaks(property);
        }
        let did_overlap = do_rivals_run(self);
        for lock in self.lagging.iter_mut().chain([&mut self.lock]) {
            rebase(lock, TICK_MILLIS);
        }
        self.monitor.tick(self.clock);
        let clients = &self.course.scope.clients;
        for (client, terms) in self.clients.iter_mut().zip(clients) {
            client.shift(terms.tick);
        }
        // Supervisors act between two ticks, before anything that happens at the next one.
        for (index, terms) in clients.iter().enumerate() {
            self.supervise(index, now() - terms.tick);
        }
        let still_overlap = did_overlap && do_rivals_run(self);
        self.monitor.overlap = if still_overlap { self.monitor.overlap + 1 } else { 0 };
        for index in 0..self.clients.len() {
            self.act_on_time(index);
        }
    }

    /// The replica that lags is the server from now on.
    fn take_over(&mut self) {
        let Some(lagging) = self.lagging.take() else { return };
        // A lease that it has, but without the last renewal, ends too soon: no waiter can tell. One
        // that it has as well may be admitted by the call of another before it tells what it saw.
        let is_whole = |client: usize| {
            let token = self.course.scope.clients[client].request.token.as_str();
            let deadline = |lock: &Lock| {
                lock.holds.iter().find(|hold| hold.token == token).map(|hold| hold.deadline)
            };
            deadline(&lagging).is_none_or(|until| Some(until) == deadline(&self.lock))
        };
        let mut clients = self.clients.iter().enumerate();
        let are_whole = clients.all(|(index, client)| !client.holds() || is_whole(index));
        let told = are_whole && lagging.queue.is_empty() && self.are_all_told();
        self.monitor.forgotten(told);
        self.monitor.went_back(&lagging, self.course.scope, self.clock);
        self.restart_with(lagging);
    }

    fn restart_with(&mut self, lock: Lock) {
        // Its clock has moved on since the last grant.
        (self.lock, self.clock) = (lock, self.clock + 1);
        self.clients.iter_mut().for_each(|client| client.mail = false);
        self.restart();
    }

    /// Whether all other clients know of every holder.
    fn are_all_told(&self) -> bool {
        let holders = self.clients.iter().enumerate().filter(|(_, client)| client.holds());
        let holders: Vec<usize> = holders.map(|(index, _)| index).collect();
        self.clients
            .iter()
            .all(|client| client.holds() || client.has_ended() || client.knows(&holders))
    }
}

/// A lock that clients had, long before those of the scope.
fn used_before() -> Lock {
    Lock { fence: 1, generation: "before".into(), ..Lock::default() }
}
