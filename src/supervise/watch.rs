//! The event loop around a process that rlock did not start. rlock does not touch the process,
//! unless the lease cannot be renewed: then it stops the process as it would stop a command.

use std::io;
use std::time::Duration;

use super::upkeep::Upkeep;
use super::watched::{Watched, has_ended};
use crate::error::Error;
use crate::report::Report;
use crate::rules::supervisor::{Action, Event};
use crate::rules::{Instant, LockOutcome, show};
use crate::store::Store;
use crate::system::signals::Signals;

/// The pause between two checks for whether the descendants have ended. No descriptor announces
/// that.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// Keeps the lease until the process has ended or has released the lock itself. Returns the store
/// for the release, unless nothing is left to release. A signal makes it ask the server at once.
pub(crate) fn run(
    watched: Watched,
    signals: Signals,
    mut upkeep: Upkeep,
    store: Box<dyn Store>,
    report: &Report,
) -> (Option<Box<dyn Store>>, Result<LockOutcome, Error>) {
    let mut report = report.clone();
    report.due = upkeep.machine.wake_at();
    upkeep.renew(store, |problem| watched.warn(&report, problem));
    let mut watcher = Watcher { watched, signals, upkeep, report };
    let over = watcher.run_to_the_end();
    if over.is_err() {
        watcher.watched.kill(&watcher.report);
    }
    let lock = watcher.upkeep.lock;
    let store = watcher.upkeep.end();
    match over {
        Ok(Over::Released) => (None, Ok(LockOutcome::Kept)),
        Ok(Over::Ended) => (store, Ok(lock)),
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
struct Watcher {
    watched: Watched,
    signals: Signals,
    upkeep: Upkeep,
    report: Report,
}

impl Watcher {
    fn run_to_the_end(&mut self) -> io::Result<Over> {
        let mut events = Vec::new();
        loop {
            for event in events {
                // The script released it, with its token.
                if matches!(&event, Event::NotHeld(why) if why.is_released()) {
                    return Ok(Over::Released);
                }
                self.handle(event);
            }
            if self.upkeep.machine.is_over() {
                return Ok(Over::Ended);
            }
            events = match self.awaited_end() {
                Some(end) => vec![end],
                None => self.next_events()?,
            };
        }
    }

    fn handle(&mut self, event: Event) {
        let actions = self.upkeep.on(event);
        // If the process must be killed at once, its stderr has only a moment.
        self.report.due = self.upkeep.machine.wake_at().or(Some(Instant::now() + CHECK_EVERY));
        // Before the process is stopped, because a process that has ended has no stderr.
        for loss in actions.iter().filter_map(Action::loss) {
            self.watched.report_loss(&self.report, loss);
        }
        for action in actions {
            match action {
                Action::ReportDelay(loss) => {
                    self.watched.warn(&self.report, &format!("{loss}; retrying"));
                }
                Action::ReportRecovery(after) if !self.report.is_quiet() => {
                    let what = format!("the lease was renewed after {}", show(after));
                    self.watched.warn(&self.report, &what);
                }
                Action::Terminate => {
                    self.watched.terminate(self.upkeep.machine.search_until(Instant::now()));
                }
                Action::Kill => self.watched.kill(&self.report),
                // The process handles its own terminal and signals.
                _ => {}
            }
        }
    }

    /// The end that the machine awaits, if it has come.
    fn awaited_end(&self) -> Option<Event> {
        if self.upkeep.machine.awaits_descendants() {
            self.watched.is_gone().then_some(Event::DescendantsGone)
        } else {
            has_ended(self.watched.process()).then_some(Event::Ended)
        }
    }

    fn next_events(&mut self) -> io::Result<Vec<Event>> {
        let (end, check_at) = match self.upkeep.machine.awaits_descendants() {
            true => (None, Some(Instant::now() + CHECK_EVERY)),
            false => (Some(self.watched.process()), None),
        };
        let (events, signaled) = self.upkeep.next_events(&self.signals, end, check_at)?;
        if signaled {
            self.signals.pending();
            self.upkeep.hurry();
        }
        Ok(events)
    }
}
