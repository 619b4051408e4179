//! The event loop around a process that rlock did not start. rlock does not touch the process,
//! unless the lease cannot be renewed: then it stops the process as it would stop a command.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::renewer::{Descriptors, RenewableHold, Renewer};
use super::watched::{Remaining, Watched, has_ended};
use crate::error::Error;
use crate::report::Report;
use crate::rules::supervisor::{Action, Event, Machine};
use crate::rules::{Instant, LockOutcome, LossPolicy};
use crate::store::Store;
use crate::system::clock::Alarm;
use crate::system::continue_timer::ContinueTimer;
use crate::system::poll::{Want, ready};
use crate::system::signals::Signals;

/// Keeps the lease until the process has ended or has released the lock itself. Returns the store
/// for the release, unless nothing is left to release. A signal makes it ask the server at once.
pub(crate) fn run(
    watched: Watched,
    signals: Signals,
    descriptors: Descriptors,
    hold: RenewableHold,
    store: Box<dyn Store>,
    loss_policy: LossPolicy,
    report: &Report,
) -> (Option<Box<dyn Store>>, Result<LockOutcome, Error>) {
    let Descriptors { wakeups, alarm } = descriptors;
    let machine = Machine::new(hold.lease, loss_policy);
    let renewer = Renewer::new(store, hold, wakeups);
    let lock = LockOutcome::Kept;
    let continue_timer = ContinueTimer::new();
    let mut watcher =
        Watcher { watched, signals, renewer, machine, alarm, continue_timer, report, lock };
    let over = watcher.run_to_the_end();
    if over.is_err() {
        watcher.watched.kill();
    }
    let store = watcher.renewer.stop();
    match over {
        Ok(Over::Released) => (None, Ok(LockOutcome::Kept)),
        Ok(Over::Ended) => (store, Ok(watcher.lock)),
        Err(error) => (store, Err(Error::system("cannot wait for events", error))),
    }
}

/// Why there is nothing more to watch.
enum Over {
    /// The process has ended, and after a loss all its descendants too.
    Ended,
    /// The script has released the lock itself.
    Released,
}

/// The state of one run.
struct Watcher<'a> {
    watched: Watched,
    signals: Signals,
    renewer: Renewer,
    machine: Machine,
    alarm: Alarm,
    continue_timer: ContinueTimer,
    report: &'a Report,
    lock: LockOutcome,
}

impl Watcher<'_> {
    fn run_to_the_end(&mut self) -> io::Result<Over> {
        let mut events = vec![Event::Tick];
        loop {
            for event in events {
                // The script released it, with its token.
                if matches!(&event, Event::NotHeld(why) if why.is_released()) {
                    return Ok(Over::Released);
                }
                self.handle(event);
            }
            if self.machine.is_over() {
                return Ok(Over::Ended);
            }
            events = match self.awaited_end() {
                Some(end) => vec![end],
                None => self.next_events()?,
            };
        }
    }

    fn handle(&mut self, event: Event) {
        let actions = self.machine.on(event, Instant::now());
        if let Some(moment) = self.machine.continue_at() {
            self.continue_timer.set(Some(moment));
        }
        // Before the process is stopped, because a process that has ended has no stderr.
        for loss in actions.iter().filter_map(Action::loss) {
            self.lock = LockOutcome::Lost;
            self.watched.warn(self.report, &loss.to_string());
        }
        for action in actions {
            match action {
                Action::Terminate => self.watched.terminate(),
                Action::Kill => self.watched.kill(),
                // The process handles its own terminal and signals.
                _ => {}
            }
        }
    }

    /// The end that the machine awaits, if it has come.
    fn awaited_end(&self) -> Option<Event> {
        if self.machine.awaits_descendants() {
            let are_gone = matches!(self.watched.remaining(), Remaining::None);
            are_gone.then_some(Event::DescendantsGone)
        } else {
            has_ended(self.watched.process()).then_some(Event::Ended)
        }
    }

    /// Becomes readable at the end that the machine awaits, or earlier. `None` if nothing does.
    fn end_of_awaited(&self) -> Option<BorrowedFd<'_>> {
        if !self.machine.awaits_descendants() {
            return Some(self.watched.process());
        }
        match self.watched.remaining() {
            Remaining::Process(process) => Some(process),
            Remaining::None => Some(self.watched.process()),
            Remaining::Unobservable => None,
        }
    }

    fn next_events(&mut self) -> io::Result<Vec<Event>> {
        let wake_at = [self.machine.wake_at(), self.renewer.wake_at()];
        self.alarm.set(wake_at.into_iter().flatten().min())?;
        let alarm = self.alarm.as_fd();
        let end = self.end_of_awaited().unwrap_or(alarm);
        let wanted = [alarm, end, self.signals.arrival(), self.renewer.arrival()];
        let [_, _, signaled, renewed] =
            ready(wanted.map(|descriptor| (descriptor, Want::Read)), None)?;
        if signaled {
            self.signals.pending();
            self.renewer.hurry();
        }
        let mut events = if renewed { self.renewer.events() } else { Vec::new() };
        events.extend(self.renewer.start_if_due(Instant::now()).err());
        events.push(Event::Tick);
        Ok(events)
    }
}
