//! What the event loops around a command and around a watched process share: a lease that is
//! renewed, and the state machine that learns in time what becomes of it.

use std::io;
use std::iter::from_fn;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::thread::JoinHandle;

use nix::sys::signal::Signal;

use super::renewer::{RenewableHold, Renewer, Wakeups};
use crate::error::Error;
use crate::report::Report;
use crate::rules::supervisor::{Action, Event, Machine};
use crate::rules::{Instant, LockOutcome, LossPolicy};
use crate::store::Store;
use crate::system::call::Named;
use crate::system::channel::{Receiver, channel};
use crate::system::clock::Alarm;
use crate::system::continue_timer::ContinueTimer;
use crate::system::poll::{Want, ready};
use crate::system::signals::Signals;
use crate::system::thread;

/// Guards what runs under a hold.
pub(crate) struct Guard {
    pub(super) machine: Machine,
    /// Whether the lock was kept until now.
    pub(super) lock: LockOutcome,
    alarm: Alarm,
    continue_timer: ContinueTimer,
    store: mpsc::Sender<Box<dyn Store>>,
    thread: JoinHandle<Option<Box<dyn Store>>>,
    events: Receiver<Event>,
    wakeups: Wakeups,
}

impl Guard {
    /// Call this before the command starts, so that a lack of descriptors or threads is an error
    /// while nothing runs, and nothing ever runs unguarded.
    pub(crate) fn prepare(
        hold: RenewableHold,
        loss_policy: LossPolicy,
        report: &Report,
    ) -> Result<Self, Error> {
        let machine = Machine::new(hold.lease, loss_policy);
        Self::start(hold, machine, report.clone())
            .map_err(|error| Error::system("cannot prepare for renewals", error))
    }

    fn start(hold: RenewableHold, machine: Machine, report: Report) -> io::Result<Self> {
        let (alarm, wakeups) = (Alarm::new()?, Wakeups::new()?);
        let (sender, events) = channel()?;
        let (store, receiver) = mpsc::channel();
        let renewer = Renewer { hold, sender, wakeups: wakeups.clone(), report };
        let run = move || receiver.recv().ok().map(|store| renewer.run(store));
        let thread = thread::start("renewer", run).named("clone")?;
        let mut continue_timer = ContinueTimer::new();
        continue_timer.set(machine.continue_at());
        let lock = LockOutcome::Kept;
        Ok(Self { machine, lock, alarm, continue_timer, store, thread, events, wakeups })
    }

    /// Takes over the store until the end, and renews the lease from now on.
    pub(super) fn renew(&self, store: Box<dyn Store>) {
        // This fails only if the thread has panicked, which ends rlock.
        let _ = self.store.send(store);
    }

    /// Asks the server now, even if no renewal is due.
    pub(super) fn hurry(&self) {
        self.wakeups.hurry.wake();
    }

    /// Handles an event, and returns what to do.
    pub(super) fn on(&mut self, event: Event) -> Vec<Action> {
        let actions = self.machine.on(event, Instant::now());
        // Before they are carried out, because a stop may come in between.
        if let Some(moment) = self.machine.continue_at() {
            self.continue_timer.set(Some(moment));
        }
        if actions.iter().any(|action| action.loss().is_some()) {
            self.lock = LockOutcome::Lost;
        }
        actions
    }

    /// Stops rlock by this signal until it is continued.
    pub(super) fn stop(&mut self, signal: Signal, signals: &mut Signals) {
        // If this fails, rlock did not stop, and simply continues.
        let _ = signals.stop(signal, &mut self.continue_timer);
    }

    /// Waits for events, signals, or until `end` becomes readable. Returns the events, and whether
    /// signals have arrived.
    pub(super) fn next_events(
        &mut self,
        signals: &Signals,
        end: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> io::Result<(Vec<Event>, bool)> {
        self.alarm.set(self.machine.wake_at())?;
        let (alarm, arrival) = (self.alarm.as_fd(), self.events.as_fd());
        let wanted = [alarm, end.unwrap_or(alarm), signals.arrival(), arrival];
        let wanted = wanted.map(|descriptor| (descriptor, Want::Read));
        let [_, _, signaled, _] = ready(wanted, until)?;
        // A renewal comes first: it may have been in time even if this runs late.
        let events = from_fn(|| self.events.next()).chain([Event::Tick]).collect();
        Ok((events, signaled))
    }

    /// Stops renewing, cancels the request under way, and returns the store, unless the thread did
    /// not return it.
    pub(super) fn end(self) -> Option<Box<dyn Store>> {
        self.wakeups.stop.wake();
        self.thread.join().ok().flatten()
    }
}
