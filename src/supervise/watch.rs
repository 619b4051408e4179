//! A process that we have not started, under a lease: it is left alone, but stopped as a command
//! would be if the lease cannot be renewed.

use std::os::fd::{AsFd, BorrowedFd};

use super::machine::{Action, Event, Machine};
use super::renewer::{Renewer, Wakeups};
use super::watched::{Rest, Watched, has_ended};
use super::{Hold, LockOutcome};
use crate::error::Error;
use crate::policy::LossPolicy;
use crate::report::Report;
use crate::store::Store;
use crate::supervise::notice::Notice;
use crate::system::clock::{Alarm, Instant};
use crate::system::poll::{Want, ready};

/// Keeps the lease until the process has ended, or has released the lock itself. The store comes
/// back for the release.
pub(crate) fn run(
    mut watched: Watched,
    mut notice: Notice,
    hold: Hold,
    store: Box<dyn Store>,
    loss_policy: LossPolicy,
    report: &Report,
) -> (Option<Box<dyn Store>>, Result<LockOutcome, Error>) {
    let wires = Wakeups::new().and_then(|wakeups| Ok((wakeups, Alarm::new()?)));
    let (wakeups, alarm) = match wires {
        Ok(wires) => wires,
        Err(error) => {
            return (Some(store), Err(Error::system("cannot prepare for renewals", &error)));
        }
    };
    let mut machine = Machine::new(hold.lease, loss_policy);
    let mut renewer = Renewer::new(store, hold.key, hold.token, hold.lease, wakeups);
    let mut lock = LockOutcome::Kept;
    let mut events = vec![Event::Tick];
    loop {
        for event in events.drain(..) {
            // By the script, with its token.
            if matches!(&event, Event::NotHeld(why) if why.is_released()) {
                drop(renewer.stop());
                return (None, Ok(LockOutcome::Kept));
            }
            let actions = machine.on(event, Instant::now());
            // First, since a process that has ended has no stderr any more.
            for loss in actions.iter().filter_map(Action::told) {
                lock = LockOutcome::Lost;
                watched.warn(report, &loss.to_string());
            }
            for action in actions {
                match action {
                    Action::Terminate => watched.terminate(),
                    Action::Kill => watched.kill(),
                    // It has a terminal and signals of its own.
                    _ => {}
                }
            }
        }
        if notice.is_given(Instant::now()) {
            renewer.hurry();
        }
        if machine.is_over() {
            return (renewer.stop(), Ok(lock));
        }
        match (machine.awaits_the_rest(), watched.rest()) {
            (false, _) if has_ended(watched.process()) => events.push(Event::Ended),
            (true, Rest::Gone) => events.push(Event::Alone),
            (_, rest) => {
                let process = match rest {
                    Rest::Alive(process) => process,
                    Rest::Gone => watched.process(),
                    Rest::Numbers => alarm.as_fd(),
                };
                match next_events(&alarm, &machine, &mut renewer, process, &notice) {
                    Ok(next) => {
                        events = next;
                        // If it is not held, those who wait do so until we have ended.
                        let goes_on =
                            |event| matches!(event, &Event::Renewed(_) | &Event::Unanswered(_));
                        if events.iter().any(goes_on) {
                            notice.is_answered();
                        }
                    }
                    Err(error) => {
                        watched.kill();
                        return (
                            renewer.stop(),
                            Err(Error::system("cannot wait for events", &error)),
                        );
                    }
                }
            }
        }
    }
}

fn next_events(
    alarm: &Alarm,
    machine: &Machine,
    renewer: &mut Renewer,
    process: BorrowedFd<'_>,
    notice: &Notice,
) -> std::io::Result<Vec<Event>> {
    let renew_at = renewer.wake_at();
    let look_at = notice.wake_at(Instant::now());
    alarm.set([machine.wake_at(), renew_at, look_at].into_iter().flatten().min())?;
    let (alarm, process) = ((alarm.as_fd(), Want::Read), (process, Want::Read));
    // In a pause the alarm alone ends it.
    let notice = if look_at.is_some() { alarm } else { (notice.as_fd(), Want::Read) };
    let mut events = Vec::new();
    let [_, _, _, kept] = ready([alarm, process, notice, (renewer.arrival(), Want::Read)], None)?;
    if kept {
        events = renewer.events();
    }
    events.extend(renewer.start_if_due(Instant::now()).err());
    events.push(Event::Tick);
    Ok(events)
}
