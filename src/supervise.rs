//! Runs a command while a lease lasts: an event loop around a state machine that decides.

mod child;
mod descendants;
mod group;
mod machine;
pub(crate) mod notice;
mod process;
mod renewer;
mod terminal;
pub(crate) mod watch;
pub(crate) mod watched;

use std::os::fd::AsFd;

use nix::libc;
use nix::sys::signal::Signal;

pub(crate) use child::Command;
use child::{Child, NotStarted};
use descendants::Descendants;
use machine::{Action, Event, Machine};
use renewer::{Renewer, Wakeups};
use terminal::{StopTarget, Terminal};

use crate::duration::show;
use crate::error::Error;
use crate::exit::Exit;
use crate::lease::Lease;
use crate::lock::{Key, Token};
use crate::policy::{Group, LossPolicy, OnLost};
use crate::report::Report;
use crate::store::{Failure, Fate, Store};
use crate::system::clock::{Alarm, Instant};
use crate::system::inherited::Inherited;
use crate::system::poll::{Want, ready};
use crate::system::signals::{self, Arrival, Signals};

/// The hold under which a command runs.
pub(crate) struct Hold {
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) lease: Lease,
}

/// How a command ended.
pub(crate) struct Ending {
    /// How rlock ends to be like the command.
    pub(crate) exit: Exit,
    /// Whether the lock was still held then.
    pub(crate) lock: LockOutcome,
    /// A signal to end the command that came when it had ended by itself.
    pub(crate) late: Option<Signal>,
    /// As it was last renewed.
    pub(crate) lease: Lease,
}

/// What became of the lock while the command ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    Kept,
    Lost,
}

/// Runs the command to its end, renewing the lease meanwhile and passing signals on. The store
/// comes back for the release, unless the thread that had it is gone.
pub(crate) fn run(
    command: &Command,
    hold: Hold,
    loss_policy: LossPolicy,
    store: Box<dyn Store>,
    signals: &mut Signals,
    inherited: Inherited,
    report: &Report,
) -> (Option<Box<dyn Store>>, Result<Ending, Error>) {
    let wires = Wakeups::new().and_then(|wakeups| Ok((wakeups, Alarm::new()?)));
    let (wakeups, alarm) = match wires {
        Ok(wires) => wires,
        Err(error) => {
            return (Some(store), Err(Error::system("cannot prepare for renewals", &error)));
        }
    };
    let machine = Machine::new(hold.lease, loss_policy);
    let (descendants, child) = match signals
        .listen_for_a_command()
        .and_then(|()| Descendants::adopt(&hold.token))
        .map_err(NotStarted::from)
        .and_then(|descendants| {
            Ok((descendants, Child::start(command, inherited, machine.stop_at())?))
        }) {
        Ok(started) => started,
        Err(why) => return (Some(store), Err(not_started(command, why))),
    };
    let terminal = Terminal::open();
    let renewer = Renewer::new(store, hold.key, hold.token, hold.lease, wakeups);
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

/// Becomes the command, without a lock. Returns only if that is impossible.
pub(crate) fn run_unlocked(command: &Command, inherited: Inherited) -> Error {
    not_started(command, child::replace(command, inherited))
}

fn not_started(command: &Command, why: NotStarted) -> Error {
    match why {
        NotStarted::Exec(error) => {
            let program = match command.program.to_string_lossy() {
                empty if empty.is_empty() => "''".into(),
                program => program.into_owned(),
            };
            Error::Command { program, error }
        }
        NotStarted::System(error) => Error::system("cannot start a process", &error),
        NotStarted::TooLate => Error::Store(Failure::Unreachable {
            what: "the lease had all but ended before the command could start".into(),
            fate: Fate::NotSent,
        }),
    }
}

struct Supervisor<'a> {
    child: Child,
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
    /// We have passed an interrupt on, from somebody who has not sent it to all of our job.
    interrupted: bool,
}

impl Supervisor<'_> {
    fn run(mut self) -> (Option<Box<dyn Store>>, Result<Ending, Error>) {
        // The command may have ended before its end could be heard.
        let mut events = self.look_at_the_child();
        while {
            self.take_in(events);
            if self.machine.awaits_the_rest() && self.descendants.are_gone(&self.child) {
                self.take_in(vec![Event::Alone]);
            }
            !self.machine.is_over()
        } {
            events = match self.next_events() {
                Ok(events) => events,
                Err(error) => {
                    self.child.signal(Signal::SIGKILL);
                    self.terminal.take_back();
                    return (
                        self.renewer.stop(),
                        Err(Error::system("cannot wait for events", &error)),
                    );
                }
            };
        }
        let store = self.renewer.stop();
        let (lock, late, lease) = (self.lock, self.late, self.machine.lease());
        let by_terminal = self.terminal.was_lent() && !self.interrupted;
        let ending = self.child.reap().map(|exit| match exit {
            // ^C or ^\, which only the command's group has seen: a script that runs us has to see
            // it too, or it goes on with its next line.
            Exit::Signal(signal @ (libc::SIGINT | libc::SIGQUIT)) if by_terminal => {
                Ending { exit: Exit::Job(signal), lock, late, lease }
            }
            exit => Ending { exit, lock, late, lease },
        });
        (store, ending.map_err(|error| Error::system("cannot wait for the command", &error)))
    }

    fn next_events(&mut self) -> std::io::Result<Vec<Event>> {
        let wake_at = [self.machine.wake_at(), self.renewer.wake_at()];
        self.alarm.set(wake_at.into_iter().flatten().min())?;
        let [_, signalled, kept] = ready(
            [
                (self.alarm.as_fd(), Want::Read),
                (self.signals.arrival(), Want::Read),
                (self.renewer.arrival(), Want::Read),
            ],
            self.signals.has_kept().then(Instant::now),
        )?;
        let signalled = signalled || self.signals.has_kept();
        // A renewal first: it may have been in time even if we look only now.
        let mut events = if kept { self.renewer.events() } else { Vec::new() };
        events.push(Event::Tick);
        events.extend(self.renewer.start_if_due(Instant::now()).err());
        if signalled {
            let (children, others): (Vec<Arrival>, Vec<Arrival>) = self
                .signals
                .pending()
                .into_iter()
                .partition(|arrival| arrival.signal == Signal::SIGCHLD);
            for Arrival { signal, by_terminal } in others {
                let reached = by_terminal && self.child.shares_our_group();
                if signals::ends(signal) && !reached && self.child.has_ended() {
                    self.late = Some(signal);
                }
                events.push(Event::Signal { signal, reached });
            }
            // After the ^Z by which the command may have been stopped.
            if !children.is_empty() {
                self.descendants.reap_adopted(&self.child);
                events.extend(self.look_at_the_child());
            }
        }
        Ok(events)
    }

    fn look_at_the_child(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if let (true, Some(signal)) = (self.terminal.exists(), self.child.has_stopped()) {
            events
                .push(Event::Stopped { signal, ours: self.terminal.is_ours(self.child.groups()) });
        }
        if self.child.has_ended() {
            events.push(Event::Ended);
        }
        events
    }

    fn take_in(&mut self, events: Vec<Event>) {
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
                self.report.detail(format_args!("not renewed: {reason}; trying again"));
            }
            Event::Diagnostic(diagnostic) => self.report.diagnostics(vec![diagnostic.clone()]),
            _ => {}
        }
    }

    /// A ^Z that was for the command alone, since it had the terminal, and a background job's wish
    /// for the terminal stop all of our job. Anything else has reached whom it was meant for.
    fn who_stops(&self, signal: Signal) -> StopTarget {
        let wish = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        match self.child.group() {
            Group::Own if wish || self.terminal.was_lent() => StopTarget::Job,
            Group::Own | Group::Ours => StopTarget::Process,
        }
    }

    /// Returns what happened meanwhile.
    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            // In our group it has the terminal whenever we have it.
            Action::Lend if self.child.group() == Group::Ours => {}
            Action::Lend => self.terminal.lend(self.child.present_group()),
            Action::TakeBack => self.terminal.take_back(),
            Action::Stop(signal) => {
                // If it fails we have not stopped, and go on all the same.
                let _ = terminal::stop_ourselves(signal, self.who_stops(signal));
                // A ^Z reaches us and a command in our group at once, in either order.
                self.signals.forget(Signal::SIGTSTP);
                return Some(Event::Resumed);
            }
            Action::Continue => self.child.signal(Signal::SIGCONT),
            Action::Forward(signal) => {
                self.report.detail(format_args!("passing {signal} on"));
                self.interrupted |= matches!(signal, Signal::SIGINT | Signal::SIGQUIT);
                self.child.signal(signal);
            }
            Action::Tell(loss) => {
                self.lock = LockOutcome::Lost;
                let then = match self.on_lost {
                    OnLost::Kill => "stopping the command",
                    OnLost::Continue => "letting the command finish without it",
                };
                self.report.warn(format_args!("{loss}; {then}"));
                if self.on_lost == OnLost::Kill && !Descendants::can_be_found() {
                    self.report.warn(
                        "cannot read /proc, so processes outside the command's group keep running; \
                         mount /proc",
                    );
                }
            }
            Action::Terminate => {
                self.child.signal(Signal::SIGTERM);
                self.descendants.signal_all(&self.child, Signal::SIGTERM);
                // A stopped process ends only once it goes on.
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
