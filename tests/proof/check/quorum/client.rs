//! The state of one client: the state machines that it runs, and what it awaits.

use std::time::Duration;

use crate::check::shift::Shift;
use crate::check::time::now;
use rlock::rules::quorum::Acquisition;
use rlock::rules::waiter::WaitMachine;
use rlock::rules::{Instant, Lease, Slot};

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// The number of its last request.
    pub(super) attempt: u64,
}

#[derive(Clone, Debug, Default, Hash)]
#[expect(clippy::large_enum_variant, reason = "most clients of most states are at work")]
pub(super) enum Phase {
    #[default]
    Idle,
    Acquiring(WaitMachine, Acquisition, Doing),
    /// Its command runs.
    Holding(Lease, Option<Slot>),
    Ended(How),
}

/// What a request does.
#[derive(Clone, Debug, Hash)]
pub(super) enum Doing {
    /// An attempt, which waits for replies until this time.
    Attempt(Instant),
    /// A sleep between two attempts, until this time.
    Sleep(Instant),
    /// A pause, because too few servers answered.
    Rest(Instant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum How {
    /// It had the lock.
    Done,
    /// It did not wait, and another client was first.
    Busy,
    /// Too few servers could be used.
    Failed,
    /// A newer request ended it.
    Superseded,
    /// Any other end, which is a fault.
    Refused,
    Signaled,
    Crashed,
}

impl Client {
    pub(super) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Holding(..))
    }

    /// The number of its slot, while its command runs.
    pub(super) fn slot(&self) -> Option<Slot> {
        match self.phase {
            Phase::Holding(_, slot) => slot,
            _ => None,
        }
    }

    pub(super) fn is_acquiring(&self) -> bool {
        matches!(self.phase, Phase::Acquiring(..))
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Whether it pauses because too few servers answered.
    pub(super) fn rests(&self) -> bool {
        matches!(self.phase, Phase::Acquiring(_, _, Doing::Rest(_)))
    }

    /// Whether it reads replies and messages.
    pub(super) fn reads(&self) -> bool {
        self.holds() || self.is_acquiring() && !self.rests()
    }

    /// When it acts without a reply.
    pub(super) fn until(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Acquiring(
                ..,
                Doing::Attempt(until) | Doing::Sleep(until) | Doing::Rest(until),
            ) => Some(*until),
            _ => None,
        }
    }

    /// Whether it acts within this time although nothing arrives.
    pub(super) fn pauses_for_less_than(&self, time: Duration) -> bool {
        self.until().is_some_and(|until| until < now() + time)
    }

    pub(super) fn shift(&mut self, back: Duration) {
        match &mut self.phase {
            Phase::Acquiring(waiter, acquisition, doing) => {
                waiter.shift(back);
                acquisition.shift(back);
                let (Doing::Attempt(until) | Doing::Sleep(until) | Doing::Rest(until)) = doing;
                until.shift(back);
            }
            Phase::Holding(lease, _) => lease.sent.shift(back),
            Phase::Idle | Phase::Ended(_) => {}
        }
    }
}
