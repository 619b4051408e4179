//! The event loop around a process that rlock has not started. The process is left alone, but is
//! stopped as a command would be if its lease cannot be renewed.

use std::os::fd::{AsFd, BorrowedFd};

use super::loss::LockOutcome;
use super::machine::{Action, Event, Machine};
use super::notice::Notice;
use super::renewer::{Hold, Renewer, prepare};
use super::watched::{Remaining, Watched, has_ended};
use crate::error::Error;
use crate::policy::LossPolicy;
use crate::report::Report;
use crate::store::Store;
use crate::system::clock::{Alarm, Instant};
use crate::system::poll::{Want, ready};

/// Keeps the lease until the process has ended or has released the lock itself. Returns the store
/// for the release.
pub(crate) fn run(
    mut watched: Watched,
    mut notice: Notice,
    hold: Hold,
    store: Box<dyn Store>,
    loss_policy: LossPolicy,
    report: &Report,
) -> (Option<Box<dyn Store>>, Result<LockOutcome, Error>) {
    let (wakeups, alarm) = match prepare() {
        Ok(prepared) => prepared,
        Err(error) => return (Some(store), Err(error)),
    };
    let mut machine = Machine::new(hold.lease, loss_policy);
    let mut renewer = Renewer::new(store, hold, wakeups);
    let mut lock = LockOutcome::Kept;
    let mut events = vec![Event::Tick];
    loop {
        for event in events.drain(..) {
            // The script released it, with its token.
            if matches!(&event, Event::NotHeld(why) if why.is_released()) {
                drop(renewer.stop());
                return (None, Ok(LockOutcome::Kept));
            }
            let actions = machine.on(event, Instant::now());
            // Before the process is stopped, because a process that has ended has no stderr.
            for loss in actions.iter().filter_map(Action::told) {
                lock = LockOutcome::Lost;
                watched.warn(report, &loss.to_string());
            }
            for action in actions {
                match action {
                    Action::Terminate => watched.terminate(),
                    Action::Kill => watched.kill(),
                    // The process handles its own terminal and signals.
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
        match (machine.awaits_descendants(), watched.remaining()) {
            (false, _) if has_ended(watched.process()) => events.push(Event::Ended),
            (true, Remaining::None) => events.push(Event::DescendantsGone),
            (_, remaining) => {
                let process = match remaining {
                    Remaining::Process(process) => process,
                    Remaining::None => watched.process(),
                    Remaining::Unobservable => alarm.as_fd(),
                };
                match next_events(&alarm, &machine, &mut renewer, process, &notice) {
                    Ok(next) => {
                        events = next;
                        // If the lock is not held, those who gave notice wait until the keeper ends.
                        let goes_on =
                            |event| matches!(event, &Event::Renewed(_) | &Event::Unanswered(_));
                        if events.iter().any(goes_on) {
                            notice.answer();
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
    // Between two looks only the alarm counts.
    let notice = if look_at.is_some() { alarm } else { (notice.as_fd(), Want::Read) };
    let mut events = Vec::new();
    let [_, _, _, renewed] =
        ready([alarm, process, notice, (renewer.arrival(), Want::Read)], None)?;
    if renewed {
        events = renewer.events();
    }
    events.extend(renewer.start_if_due(Instant::now()).err());
    events.push(Event::Tick);
    Ok(events)
}
