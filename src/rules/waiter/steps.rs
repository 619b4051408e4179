//! What a waiter does, what it learns and what it reports.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::rules::{
    Answer, Asked, ClientInfo, Failure, Fence, Instant, Lease, NotRunning, Operator, Reason, Seen,
    Slot, Ticket, View,
};

/// A sleep that a failure ends sooner was cut short. If that happens again and again, the server, or
/// a proxy before it, does not let the waiter sleep.
pub(super) const SHORT_SLEEP: Duration = Duration::from_secs(1);

/// What the waiter does next. Every step but the last leads to one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitStep {
    /// Send the request; then `WaitEvent::Answered`. `seen` lists the holders that the waiter has seen.
    /// `arrival` is from the first answer, if the request supersedes.
    Ask { seen: Option<Seen>, arrival: Option<Ticket> },
    /// Sleep until the store wakes the waiter; then `WaitEvent::Woken`, or `WaitEvent::Answered` if the
    /// store has already asked again. `seen` is as for `Ask`.
    Sleep { at_most: Duration, seen: Option<Seen> },
    /// Pause without using the store; then `WaitEvent::Rested`.
    Rest { at: Instant },
    /// Withdraw the request, so that the wait can end this way; then `WaitEvent::Withdrawn`. If
    /// `WaitEnd::is_unanswered`, do not await a reply.
    Withdraw(WaitEnd),
    /// The wait is over.
    End(WaitEnd),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WaitEnd {
    Granted(Lease, Fence, Option<Slot>),
    /// The request does not wait, and the lock is not free.
    Busy(View),
    /// The lock was not granted within the wait limit.
    TimedOut(View),
    Nested,
    Upgrade,
    Ended(Reason),
    Superseded(ClientInfo),
    Removed(Operator),
    /// The request failed, or the server stopped answering while it was queued.
    Failed(Failure),
    Stopped(Stop),
}

/// What ends a wait from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    Signal(Signal),
    /// The process that needs the lock has ended.
    ProcessEnded,
}

impl WaitEnd {
    /// Whether the server was waited for in vain. The withdrawal does not wait for it again.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.was_awaited_in_vain())
    }
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitEvent {
    /// `sent` is the time just before the request was sent.
    Answered {
        sent: Instant,
        answer: Result<Answer, Failure>,
    },
    Woken(Result<(), Failure>),
    /// A pause is over.
    Rested,
    /// A failure has ended a sleep within `SHORT_SLEEP`.
    CutShort(Failure),
    /// Without a reply, the request expires on the server.
    Withdrawn(WaitEnd, Result<(), Failure>),
}

impl WaitEvent {
    /// How a sleep has ended that began at this moment.
    pub(crate) fn slept(
        begun: Instant,
        result: Result<Option<Asked>, Failure>,
        now: Instant,
    ) -> Self {
        match result {
            Ok(Some(Asked { sent, answer })) => Self::Answered { sent, answer: Ok(answer) },
            Err(failure) if now < begun + SHORT_SLEEP => Self::CutShort(failure),
            result => Self::Woken(result.map(drop)),
        }
    }
}

/// Something to report to the user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    Queued {
        view: View,
        position: u64,
        sleep: Duration,
    },
    /// A first failure, which does not justify a message yet.
    Retrying(Failure),
    /// The server still does not answer, for this reason by now, and the waiter keeps trying.
    Away(Failure),
    /// The waiter cannot sleep, and asks at growing intervals instead, up to this one.
    Polling(Failure, Duration),
    /// rlock itself was not running.
    NotRunning(NotRunning),
    /// The server answers again after `Retrying` or `Away`.
    Back,
    NotWithdrawn(Failure),
}
