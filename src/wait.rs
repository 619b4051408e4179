//! From a request to a lease: asking for a lock, waiting in the queue, and withdrawing cleanly.
//! `waiter` decides on the steps, and this module carries them out.

mod live;
mod messages;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::rules::waiter::{Note, Stop, WaitEnd, WaitEvent, WaitMachine, WaitStep};
use anyhow::Context;
use messages::Messages;

use crate::error::Error;
use crate::report::Report;
use crate::rules::{Fence, Instant, Lease, Mode, Request, Slot, UserMessage, View, show};
use crate::store::Store;
use crate::system::poll::{NEVER, Want, is_ready, wait};
use crate::system::signals::Signals;

/// A lock that was granted.
pub(crate) struct Acquired {
    pub(crate) lease: Lease,
    /// How long the first answer took, with the connection.
    pub(crate) connected_in: Duration,
    pub(crate) fence: Fence,
    /// The number of the holder in a lock with slots; `None` in another mode.
    pub(crate) slot: Option<Slot>,
}

/// What ends a wait, besides a signal.
pub(crate) struct Bounds<'a> {
    /// As `Terms::wait_limit`.
    pub(crate) wait: Option<Duration>,
    /// As `Terms::start_limit`.
    pub(crate) start: Duration,
    /// A pidfd of the process that needs the lock.
    pub(crate) needed_by: Option<BorrowedFd<'a>>,
}

/// Requests a lock until the server grants it, or one of the bounds or a signal ends the wait. On
/// failure it withdraws the request, if it can still reach the server.
pub(crate) fn acquire(
    store: &mut dyn Store,
    request: &mut Request,
    bounds: Bounds<'_>,
    signals: &mut Signals,
    report: &Report,
) -> Result<Acquired, Error> {
    let started = Instant::now();
    // With zero, not a moment ends it, but the first answer or the first failure.
    let end_of = |limit: Duration| (!limit.is_zero()).then(|| started + limit);
    let (wait_until, start_until) = (bounds.wait.and_then(end_of), end_of(bounds.start));
    let mut messages = Messages::new(report, request.mode, started, wait_until);
    let (mut gave_up, mut connected_in) = (None, None);
    // How many waiters were ahead of this one at last; `MAX`: unknown.
    let mut ahead = u64::MAX;
    let (mut waiter, mut step) = WaitMachine::new(request.ttl, wait_until, start_until, started);
    loop {
        let deadline = waiter.deadline();
        let stops = NEVER.or(signals.readable()).or(bounds.needed_by).or_at(deadline);
        let event = match step {
            WaitStep::Ask { seen, arrival } => {
                (request.arrival, request.seen) = (arrival, seen);
                let sent = Instant::now();
                let answer = store.acquire(request, stops);
                if answer.is_ok() {
                    connected_in.get_or_insert(Instant::now().since(sent));
                }
                WaitEvent::Answered { sent, answer }
            }
            WaitStep::Sleep { at_most, seen } => {
                request.seen = seen;
                let begun = Instant::now();
                let slept = store.sleep(request, at_most, stops);
                WaitEvent::slept(begun, slept, Instant::now())
            }
            WaitStep::Rest { at } => {
                wait(None, stops, at).context("cannot wait")?;
                WaitEvent::Rested
            }
            WaitStep::Withdraw(end) => {
                // An unreachable server delays the exit, but was not waited for.
                gave_up = Some(Instant::now());
                if end.is_unanswered() {
                    store.withdraw_blind(request);
                    WaitEvent::Withdrawn(end, Ok(()))
                } else {
                    request.is_skipped = matches!(end, WaitEnd::TimedOut(_));
                    let begun = Instant::now();
                    // A signal has ended the wait before, and does not end the withdrawal.
                    let withdrawn = store.withdraw(request, NEVER.or_at(deadline));
                    let now = Instant::now();
                    // Whether an inspection that takes as long as the withdrawal ends in time.
                    let may_inspect = deadline.is_none_or(|at| now + now.since(begun) < at);
                    let end = match end {
                        // Some servers of a quorum may have been silent since the last change.
                        WaitEnd::TimedOut(view) if may_inspect && withdrawn.is_ok() => {
                            WaitEnd::TimedOut(store.inspect(&request.key).unwrap_or(view))
                        }
                        end => end,
                    };
                    WaitEvent::Withdrawn(end, withdrawn)
                }
            }
            WaitStep::End(end) => {
                let begun = messages.begun;
                drop(messages);
                let waited = gave_up.unwrap_or_else(Instant::now).since(started);
                if begun && matches!(end, WaitEnd::Granted(..)) && report.is_normal() {
                    report.note(format_args!("acquired after {}", show(waited)));
                }
                let connected_in = connected_in.unwrap_or_default();
                return ended(end, request, connected_in, waited, ahead, report);
            }
        };
        report.diagnostics(store.diagnostics());
        let has_ended = || bounds.needed_by.is_some_and(|process| is_ready(process, Want::Read));
        let stop = signals.first().map(Stop::Signal);
        let stop = stop.or_else(|| has_ended().then_some(Stop::ProcessEnded));
        let now = Instant::now();
        let (notes, next) = waiter.on(event, stop, now);
        for mut note in notes {
            if let Note::Queued { view, position, .. } = &mut note {
                ahead = position.saturating_sub(1);
                count_only(ahead, view);
            }
            messages.print(note, now);
        }
        step = next;
        if matches!(step, WaitStep::Ask { .. } | WaitStep::Sleep { .. } | WaitStep::Rest { .. }) {
            messages.remind(now);
        }
    }
}

/// Leaves only the waiters ahead of this one in the view. The server counts all of them.
fn count_only(ahead: u64, view: &mut View) {
    view.unlisted_waiters = view.waiter_count().min(ahead);
    view.waiters.clear();
}

fn ended(
    end: WaitEnd,
    request: &Request,
    connected_in: Duration,
    waited: Duration,
    ahead: u64,
    report: &Report,
) -> Result<Acquired, Error> {
    let busy = |view, waited| Error::Busy { view: Box::new(view), asked: request.mode, waited };
    Err(match end {
        WaitEnd::Granted(lease, fence, slot) => {
            let number = match (request.mode, slot) {
                (Mode::Slots(slots), Some(slot)) => format!(", slot {slot} of {slots}"),
                _ => String::new(),
            };
            let waited = show(waited);
            report.detail(format_args!("acquired after {waited}, fencing token {fence}{number}"));
            return Ok(Acquired { lease, connected_in, fence, slot });
        }
        WaitEnd::Busy(view) => busy(view, None),
        WaitEnd::TimedOut(mut view) => {
            count_only(ahead, &mut view);
            busy(view, Some(waited))
        }
        WaitEnd::Nested if request.reentrant || request.mode.slots().is_some() => {
            let enclosed = UserMessage::new(
                "held by an enclosing command (see RLOCK_HELD); with --slots, or after a loss, \
                 --reentrant cannot enter it",
            );
            Error::Held(enclosed.with_remedy("use another lock"))
        }
        WaitEnd::Nested => {
            Error::Held("held by an enclosing command (see RLOCK_HELD); use --reentrant".into())
        }
        WaitEnd::Upgrade => {
            Error::Held("held shared by an enclosing command; take it exclusively there".into())
        }
        WaitEnd::Ended(why) => {
            let ended = UserMessage::new(format!("this token's hold {why}"));
            Error::Ended(ended.with_remedy("acquire the lock again"))
        }
        WaitEnd::Superseded(newer) => Error::Superseded(Box::new(newer)),
        WaitEnd::Removed(operator) => Error::Removed(operator),
        WaitEnd::Failed(failure) => failure.into(),
        WaitEnd::Stopped(Stop::Signal(signal)) => Error::Stopped(signal),
        WaitEnd::Stopped(Stop::ProcessEnded) => Error::ProcessEnded,
    })
}
