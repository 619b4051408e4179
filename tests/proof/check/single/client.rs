//! The state of one client: the state machine that it is in, and what it awaits.

use std::time::Duration;

use super::connection::Connection;
use crate::check::scope::whose;
use crate::check::shift::Shift;
use crate::check::time::now;
use rlock::rules::renewals::Schedule;
use rlock::rules::supervisor::Machine;
use rlock::rules::waiter::{WaitEnd, WaitMachine};
use rlock::rules::{Attempts, Instant, Seen, Slot, Ticket};

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    pub(super) connection: Connection,
    /// The number of its last request for the lock.
    pub(super) attempt: u64,
    /// The number of its slot, while its command runs.
    pub(super) slot: Option<Slot>,
    /// Whether a message for it is in its mailbox.
    pub(super) mail: bool,
    /// Whether a signal should end its wait.
    pub(super) signaled: bool,
    pub(super) paused: bool,
    /// Whether it cannot reach the server.
    pub(super) cut: bool,
}

#[derive(Clone, Debug, Default, Hash)]
#[expect(clippy::large_enum_variant, reason = "most clients of most states are at work")]
pub(super) enum Phase {
    #[default]
    Idle,
    Waiting(WaitMachine, Pending),
    /// Its command runs.
    Holding(Machine, Schedule),
    /// `Some`: when to try again.
    Releasing(Attempts, Option<Instant>),
    Ended,
    Crashed,
}

/// What a waiter waits for.
#[derive(Clone, Debug, Hash)]
pub(super) enum Pending {
    /// An answer to a request that named these holders and this ticket.
    Answer(Option<Seen>, Option<Ticket>),
    Sleep(Instant),
    Rest(Instant),
    Withdrawal(WaitEnd),
}

impl Client {
    pub(super) fn reads(&self) -> bool {
        self.connection.reply.is_some() && !self.paused
    }

    pub(super) fn wakes(&self) -> bool {
        self.mail && !self.paused && self.is_asleep()
    }

    pub(super) fn is_asleep(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_, Pending::Sleep(_)))
    }

    /// How many messages time would delay. Those for a paused client wait for it.
    pub(super) fn load(&self) -> u8 {
        match self.paused {
            true => self.connection.requests.len() as u8,
            false => self.connection.load() + u8::from(self.wakes()),
        }
    }

    /// Whether it would notice that its connection breaks.
    pub(super) fn awaits_server(&self) -> bool {
        self.connection.awaited.is_some() || self.is_asleep()
    }

    pub(super) fn is_at_work(&self) -> bool {
        matches!(self.phase, Phase::Waiting(..) | Phase::Holding(..) | Phase::Releasing(..))
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended | Phase::Crashed)
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, Phase::Waiting(..))
    }

    /// Whether its command runs.
    pub(super) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Holding(..))
    }

    /// Whether its lease has expired while it was paused, so that it cannot know.
    pub(super) fn overslept(&self) -> bool {
        match &self.phase {
            Phase::Holding(machine, _) => self.paused && machine.lease.deadline() <= now(),
            _ => false,
        }
    }

    /// Whether its waiter knows of these clients as holders.
    pub(super) fn knows(&self, holders: &[usize]) -> bool {
        let Phase::Waiting(waiter, _) = &self.phase else { return holders.is_empty() };
        let known = waiter.last_view.iter().flat_map(|(_, view)| &view.holders);
        let known: Vec<usize> = known.flat_map(|it| it.ids()).map(|id| whose(id)).collect();
        holders.iter().all(|holder| known.contains(holder))
    }

    pub(super) fn shift(&mut self, back: Duration) {
        self.connection.shift(back);
        // It makes no difference by how much.
        if self.overslept() {
            return;
        }
        match &mut self.phase {
            Phase::Waiting(waiter, pending) => {
                waiter.shift(back);
                if let Pending::Sleep(until) | Pending::Rest(until) = pending {
                    until.shift(back);
                }
            }
            Phase::Holding(machine, schedule) => {
                machine.shift(back);
                schedule.next.shift(back);
                schedule.lease.sent.shift(back);
            }
            Phase::Releasing(attempts, again) => {
                attempts.until.shift(back);
                attempts.deadline.shift(back);
                again.shift(back);
            }
            Phase::Idle | Phase::Ended | Phase::Crashed => {}
        }
    }
}
