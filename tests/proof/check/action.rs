//! The actions of a search, and what each of them changes.

use super::lock::{overwrite, rebase};
use super::world::{TICK, TICK_MILLIS, World, now};
use rlock::rules::Revocation;

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

    // Faults, signals, and what operators and other tools do.
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

impl World {
    pub(super) fn act(&mut self, action: Action) {
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
}
