//! The event loop around a command: it passes events to the state machine and carries out its
//! actions.

use std::io;
use std::os::fd::AsFd;

use nix::sys::signal::Signal;

use super::child::Child;
use super::command::{Command, NotStarted};
use super::descendants::Descendants;
use super::group::OwnGroup;
use super::renewer::{Descriptors, RenewableHold, Renewer};
use crate::error::Error;
use crate::exit::Exit;
use crate::report::Report;
use crate::rules::supervisor::{Action, Event, Machine, stops};
use crate::rules::{Instant, Lease, LockOutcome, LossPolicy, OnLost, show};
use crate::store::Store;
use crate::system::clock::Alarm;
use crate::system::continue_timer::ContinueTimer;
use crate::system::inherited::Inherited;
use crate::system::poll::{Want, ready};
use crate::system::signals::{self, Arrival, Signals};

/// How a command ended.
pub(crate) struct Completion {
    /// How rlock ends, so that its caller sees how the command ended.
    pub(crate) exit: Exit,
    /// Whether the lock was kept until then.
    pub(crate) lock: LockOutcome,
    /// A signal that asks the command to end, but arrived after it had ended.
    pub(crate) late: Option<Signal>,
    /// The lease as last renewed.
    pub(crate) lease: Lease,
}

/// Runs the command to its end, renews the lease meanwhile and passes signals on. Returns the store
/// for the release, unless the renewing thread did not return it.
pub(crate) fn run(
    command: &Command,
    hold: RenewableHold,
    loss_policy: LossPolicy,
    store: Box<dyn Store>,
    signals: &mut Signals,
    inherited: Inherited,
    report: &Report,
) -> (Option<Box<dyn Store>>, Result<Completion, Error>) {
    let Descriptors { wakeups, alarm } = match Descriptors::open() {
        Ok(descriptors) => descriptors,
        Err(error) => return (Some(store), Err(error)),
    };
    let machine = Machine::new(hold.lease, loss_policy);
    // Before the command starts, so that it never runs unguarded.
    let mut continue_timer = ContinueTimer::new();
    continue_timer.set(machine.continue_at());
    let started = signals.listen_for_a_command().map_err(NotStarted::from).and_then(|()| {
        let leader = command.group.as_ref().map(OwnGroup::id);
        let descendants = Descendants::adopt(&hold.token, leader);
        let child = Child::start(command, signals, inherited, machine.stop_at())?;
        Ok((descendants, child))
    });
    let (descendants, child) = match started {
        Ok(started) => started,
        Err(why) => return (Some(store), Err(why.into_error(command))),
    };
    let renewer = Renewer::new(store, hold, wakeups);
    Supervisor {
        child,
        descendants,
        renewer,
        machine,
        alarm,
        continue_timer,
        signals,
        report,
        on_lost: loss_policy.on_lost,
        lock: LockOutcome::Kept,
        late: None,
    }
    .run()
}

/// The state of one run.
struct Supervisor<'a> {
    child: Child<'a>,
    descendants: Descendants,
    renewer: Renewer,
    machine: Machine,
    alarm: Alarm,
    continue_timer: ContinueTimer,
    signals: &'a mut Signals,
    report: &'a Report,
    on_lost: OnLost,
    lock: LockOutcome,
    late: Option<Signal>,
}

impl Supervisor<'_> {
    fn run(mut self) -> (Option<Box<dyn Store>>, Result<Completion, Error>) {
        if let Err(error) = self.run_to_the_end() {
            self.child.signal(Signal::SIGKILL);
            return (self.renewer.stop(), Err(Error::system("cannot wait for events", error)));
        }
        let store = self.renewer.stop();
        let (lock, late, lease) = (self.lock, self.late, self.machine.lease());
        let ending = self.child.reap().map(|exit| Completion { exit, lock, late, lease });
        (store, ending.map_err(|error| Error::system("cannot wait for the command", error)))
    }

    fn run_to_the_end(&mut self) -> io::Result<()> {
        // The command may have ended before rlock listened for SIGCHLD, or before it read a signal that
        // the command has received too.
        let mut events: Vec<Event> = self.check_child().into_iter().collect();
        events.extend(self.signal_events());
        loop {
            self.handle(events);
            if self.machine.awaits_descendants() && self.descendants.are_gone(&self.child) {
                self.handle(vec![Event::DescendantsGone]);
            }
            if self.machine.is_over() {
                return Ok(());
            }
            events = self.next_events()?;
        }
    }

    fn next_events(&mut self) -> io::Result<Vec<Event>> {
        let wake_at = [self.machine.wake_at(), self.renewer.wake_at()];
        self.alarm.set(wake_at.into_iter().flatten().min())?;
        let [_, signaled, renewed] = ready(
            [
                (self.alarm.as_fd(), Want::Read),
                (self.signals.arrival(), Want::Read),
                (self.renewer.arrival(), Want::Read),
            ],
            self.signals.has_kept().then(Instant::now),
        )?;
        let signaled = signaled || self.signals.has_kept();
        // A renewal comes first: it may have been in time even if this runs late.
        let mut events = if renewed { self.renewer.events() } else { Vec::new() };
        events.push(Event::Tick);
        events.extend(self.renewer.start_if_due(Instant::now()).err());
        if signaled {
            events.extend(self.signal_events());
        }
        Ok(events)
    }

    fn signal_events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        // Last, because rlock stops there. Once is enough: the kernel too drops other stop signals
        // when it continues a process.
        let mut stop = None;
        for Arrival { signal, by_terminal } in self.signals.pending() {
            if signal == Signal::SIGCHLD {
                self.descendants.reap_adopted(&self.child);
                events.extend(self.check_child());
                continue;
            }
            let reached = by_terminal && self.child.shares_group();
            if signals::ends(signal) && !reached && self.child.has_ended() {
                self.late = Some(signal);
            }
            let event = Event::Signal { signal, reached };
            if stops(signal) { stop = Some(event) } else { events.push(event) }
        }
        events.extend(stop);
        events
    }

    fn check_child(&self) -> Option<Event> {
        self.child.has_ended().then_some(Event::Ended)
    }

    fn handle(&mut self, events: Vec<Event>) {
        for event in events {
            self.describe(&event);
            let mut next = Some(event);
            while let Some(event) = next.take() {
                let actions = self.machine.on(event, Instant::now());
                // Before they are carried out, because a stop may come in between.
                if let Some(moment) = self.machine.continue_at() {
                    self.continue_timer.set(Some(moment));
                }
                for action in actions {
                    next = self.perform(action).or(next);
                }
            }
        }
    }

    fn describe(&self, event: &Event) {
        match event {
            Event::Renewed(lease) => {
                self.report.detail(format_args!("renewed for {}", show(lease.ttl().get())));
            }
            Event::Unanswered(reason) => {
                self.report.detail(format_args!("not renewed: {reason}; retrying"));
            }
            _ => {}
        }
    }

    /// Carries out one action. Returns an event that this causes.
    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Stop(signal) => {
                // If this fails, rlock did not stop, and simply continues.
                let _ = self.signals.stop(signal, &mut self.continue_timer);
                return Some(Event::Resumed);
            }
            Action::Continue => self.child.resume(),
            Action::Forward(signal) => {
                self.report.detail(format_args!("forwarding {signal} to the command"));
                self.child.signal(signal);
            }
            Action::ReportLoss(loss) => {
                self.lock = LockOutcome::Lost;
                let then = match self.on_lost {
                    OnLost::Kill => "stopping the command",
                    OnLost::Continue => "letting the command finish without the lock",
                };
                self.report.warn(format_args!("{loss}; {then}"));
                if self.on_lost == OnLost::Kill
                    && let Some(problem) = self.descendants.out_of_reach()
                {
                    self.report.warn(problem);
                }
            }
            Action::Terminate => {
                self.child.signal(Signal::SIGTERM);
                self.descendants.signal_all(&self.child, Signal::SIGTERM);
                // A stopped process ends only once it is continued.
                self.child.signal(Signal::SIGCONT);
                self.descendants.signal_all(&self.child, Signal::SIGCONT);
            }
            Action::Kill => {
                self.child.signal(Signal::SIGKILL);
                self.descendants.kill_all(&self.child);
            }
        }
        None
    }
}
