//! The event loop around a command: it passes events to the state machine and carries out its
//! actions.

use std::io;
use std::os::fd::AsFd;

use nix::libc;
use nix::sys::signal::Signal;

use super::child::Child;
use super::command::{Command, NotStarted};
use super::descendants::Descendants;
use super::group::OwnGroup;
use super::loss::LockOutcome;
use super::machine::{Action, Event, Machine};
use super::renewer::{Descriptors, RenewableHold, Renewer};
use super::terminal::{self, StopTarget, Terminal};
use crate::duration::show;
use crate::error::Error;
use crate::exit::Exit;
use crate::lease::Lease;
use crate::policy::{Group, LossPolicy, OnLost};
use crate::report::Report;
use crate::store::Store;
use crate::system::clock::{Alarm, Instant};
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
    let started = signals.listen_for_a_command().map_err(NotStarted::from).and_then(|()| {
        let leader = command.group.as_ref().map(OwnGroup::id);
        let descendants = Descendants::adopt(&hold.token, leader);
        Ok((descendants, Child::start(command, inherited, machine.stop_at())?))
    });
    let (descendants, child) = match started {
        Ok(started) => started,
        Err(why) => return (Some(store), Err(why.into_error(command))),
    };
    let terminal = Terminal::open();
    let renewer = Renewer::new(store, hold, wakeups);
    Supervisor {
        child,
        descendants,
        renewer,
        machine,
        alarm,
        terminal,
        signals,
        report,
        on_lost: loss_policy.on_lost,
        lock: LockOutcome::Kept,
        late: None,
        interrupted: false,
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
    terminal: Terminal,
    signals: &'a mut Signals,
    report: &'a Report,
    on_lost: OnLost,
    lock: LockOutcome,
    late: Option<Signal>,
    /// Whether an interrupt was passed on that was not sent to all of this job.
    interrupted: bool,
}

impl Supervisor<'_> {
    fn run(mut self) -> (Option<Box<dyn Store>>, Result<Completion, Error>) {
        if let Err(error) = self.run_to_the_end() {
            self.child.signal(Signal::SIGKILL);
            self.terminal.take_back();
            return (self.renewer.stop(), Err(Error::system("cannot wait for events", error)));
        }
        let store = self.renewer.stop();
        let (lock, late, lease) = (self.lock, self.late, self.machine.lease());
        let by_terminal = self.terminal.was_lent() && !self.interrupted;
        let ending = self.child.reap().map(|exit| match exit {
            // Only the command's group received this ^C or ^\. A script that runs rlock must
            // receive it too, or it would continue with its next line.
            Exit::Signal(signal @ (libc::SIGINT | libc::SIGQUIT)) if by_terminal => {
                Completion { exit: Exit::Job(signal), lock, late, lease }
            }
            exit => Completion { exit, lock, late, lease },
        });
        (store, ending.map_err(|error| Error::system("cannot wait for the command", error)))
    }

    fn run_to_the_end(&mut self) -> io::Result<()> {
        // The command may have ended before rlock listened for SIGCHLD.
        let mut events = self.check_child();
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
        let is_of_child = |arrival: &Arrival| arrival.signal == Signal::SIGCHLD;
        let (children, others): (Vec<Arrival>, Vec<Arrival>) =
            self.signals.pending().into_iter().partition(is_of_child);
        for Arrival { signal, by_terminal } in others {
            let reached = by_terminal && self.child.shares_group();
            if signals::ends(signal) && !reached && self.child.has_ended() {
                self.late = Some(signal);
            }
            events.push(Event::Signal { signal, reached });
        }
        // After the other signals, because a ^Z among them may be what stopped the command.
        if !children.is_empty() {
            self.descendants.reap_adopted(&self.child);
            events.extend(self.check_child());
        }
        events
    }

    fn check_child(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if let (true, Some(signal)) = (self.terminal.exists(), self.child.has_stopped()) {
            events.push(Event::Stopped {
                signal,
                foreground: self.terminal.is_foreground(self.child.groups()),
            });
        }
        if self.child.has_ended() {
            events.push(Event::Ended);
        }
        events
    }

    fn handle(&mut self, events: Vec<Event>) {
        for event in events {
            self.describe(&event);
            let mut next = Some(event);
            while let Some(event) = next.take() {
                for action in self.machine.on(event, Instant::now()) {
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

    /// Selects which processes stop along with the command. The whole job stops if it accessed the
    /// terminal in the background, and after a ^Z that only the command received because it had the
    /// terminal. Any other ^Z has already reached the rest of the job.
    fn stop_target(&self, signal: Signal) -> StopTarget {
        let is_access = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        match self.child.group() {
            Group::New if is_access || self.terminal.was_lent() => StopTarget::Job,
            Group::New | Group::Inherited => StopTarget::Process,
        }
    }

    /// Carries out one action. Returns an event that this causes.
    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            // In rlock's group the command has the terminal whenever rlock has it.
            Action::Lend if self.child.group() == Group::Inherited => {}
            Action::Lend => self.terminal.lend(self.child.present_group()),
            Action::TakeBack => self.terminal.take_back(),
            Action::Stop(signal) => {
                // If this fails, rlock did not stop, and simply continues.
                let _ = terminal::stop(signal, self.stop_target(signal));
                // A ^Z reaches rlock and a command in its group at the same time, in either order.
                self.signals.forget(Signal::SIGTSTP);
                return Some(Event::Resumed);
            }
            Action::Continue => self.child.signal(Signal::SIGCONT),
            Action::Forward(signal) => {
                self.report.detail(format_args!("forwarding {signal} to the command"));
                self.interrupted |= matches!(signal, Signal::SIGINT | Signal::SIGQUIT);
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
