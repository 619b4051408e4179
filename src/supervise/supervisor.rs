//! The event loop around a command: it passes events to the state machine and carries out its
//! actions.

use std::io;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{getpgrp, getpid, getsid};

use super::child::Child;
use super::command::{Command, not_started};
use super::descendants::Descendants;
use super::group::OwnGroup;
use super::renewer::RenewableHold;
use super::upkeep::Upkeep;
use crate::error::Error;
use crate::exit::Exit;
use crate::report::Report;
use crate::rules::supervisor::{Action, Event, stops};
use crate::rules::{Instant, Lease, LockOutcome, LossPolicy, OnLost, show};
use crate::store::Store;
use crate::system::inherited::Inherited;
use crate::system::signals::{self, Arrival, Signals};
use crate::system::spawn::NotStarted;
use crate::system::thread::without_signals;

/// How a command ended that was started.
pub(crate) struct Completion {
    /// How rlock ends, so that its caller sees how the command ended.
    pub(crate) exit: Result<Exit, Error>,
    /// Whether the lock was kept until then.
    pub(crate) lock: LockOutcome,
    /// A signal that asks the command to end, but arrived after it had ended.
    pub(crate) late: Option<Signal>,
    /// The lease as last renewed.
    pub(crate) lease: Lease,
}

/// Runs the command to its end, renews the lease meanwhile and passes signals on. Returns the store
/// for the release, unless the renewing thread did not return it. An error means that the command
/// was never started.
pub(crate) fn run(
    command: &Command,
    hold: RenewableHold,
    loss_policy: LossPolicy,
    store: Box<dyn Store>,
    signals: &mut Signals,
    inherited: Inherited,
    report: &Report,
) -> (Option<Box<dyn Store>>, Result<Completion, Error>) {
    let token = hold.token.clone();
    let mut upkeep = match Upkeep::prepare(hold, loss_policy, report) {
        Ok(upkeep) => upkeep,
        Err(error) => return (Some(store), Err(error)),
    };
    let started = signals.listen_for_a_command().map_err(NotStarted::from).and_then(|()| {
        let leader = command.group.as_ref().map(OwnGroup::id);
        let descendants = Descendants::adopt(token, leader)?;
        let stop_at = upkeep.machine.stop_at();
        let child = without_signals(|| Child::start(command, signals, inherited, stop_at))??;
        Ok((descendants, child))
    });
    let (descendants, child) = match started {
        Ok(started) => started,
        Err(why) => return (Some(store), Err(not_started(why, command))),
    };
    let mut report = report.clone();
    report.due = upkeep.machine.wake_at();
    upkeep.renew(store, |problem| report.warn(problem));
    let on_lost = loss_policy.on_lost;
    Supervisor { child, descendants, upkeep, signals, report, on_lost, late: None }.run()
}

/// The state of one run.
struct Supervisor<'a> {
    child: Child<'a>,
    descendants: Descendants,
    upkeep: Upkeep,
    signals: &'a mut Signals,
    report: Report,
    on_lost: OnLost,
    late: Option<Signal>,
}

impl Supervisor<'_> {
    fn run(mut self) -> (Option<Box<dyn Store>>, Result<Completion, Error>) {
        let over = self.run_to_the_end();
        if over.is_err() {
            self.kill();
        }
        let (lock, late, lease) = (self.upkeep.lock, self.late, self.upkeep.machine.lease);
        // The lease is renewed until the command is gone, because only then may it be released.
        let reaped = self.child.reap();
        let store = self.upkeep.end();
        let exit = over
            .map_err(|error| Error::system("cannot wait for events", error))
            .and(reaped.map_err(|error| Error::system("cannot wait for the command", error)));
        (store, Ok(Completion { exit, lock, late, lease }))
    }

    fn run_to_the_end(&mut self) -> io::Result<()> {
        // The command may have ended before rlock listened for SIGCHLD, or before it read a signal that
        // the command has received too.
        let mut events: Vec<Event> = self.check_child().into_iter().collect();
        events.extend(self.signal_events());
        loop {
            for event in events {
                self.handle(event);
            }
            let machine = &self.upkeep.machine;
            if machine.awaits_descendants()
                && self.descendants.are_gone(
                    &self.child,
                    None,
                    machine.search_until(Instant::now()),
                )
            {
                self.handle(Event::DescendantsGone);
            }
            if self.upkeep.machine.is_over() {
                return Ok(());
            }
            events = self.next_events()?;
        }
    }

    fn next_events(&mut self) -> io::Result<Vec<Event>> {
        let at_once = self.signals.has_kept().then(Instant::now);
        let (mut events, signaled) = self.upkeep.next_events(self.signals, None, at_once)?;
        if signaled || at_once.is_some() {
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
            if reached && signal == Signal::SIGHUP && getsid(None) == Ok(getpid()) {
                // The terminal is gone, and the kernel tells only the leader of its session. When
                // that ends, as flock(1) does, the kernel tells the whole group.
                for signal in [Signal::SIGHUP, Signal::SIGCONT] {
                    let _ = killpg(getpgrp(), signal);
                }
            }
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

    fn handle(&mut self, event: Event) {
        self.describe(&event);
        let actions = self.upkeep.on(event);
        self.report.due = self.upkeep.machine.wake_at();
        for action in actions {
            self.perform(action);
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

    fn perform(&mut self, action: Action) {
        match action {
            Action::Stop(signal) => {
                self.upkeep.stop(signal, self.signals);
                self.handle(Event::Resumed);
            }
            Action::Continue => self.child.resume(),
            Action::Forward(signal) => {
                self.report.detail(format_args!("forwarding {signal} to the command"));
                self.child.signal(signal);
            }
            Action::ReportLoss(loss) => {
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
            Action::ReportDelay(loss) => self.report.warn(format_args!("{loss}; retrying")),
            Action::ReportRecovery(after) => {
                self.report.note(format_args!("the lease was renewed after {}", show(after)));
            }
            Action::Terminate => {
                self.descendants
                    .terminate(&mut self.child, self.upkeep.machine.search_until(Instant::now()));
            }
            Action::Kill => self.kill(),
        }
    }

    fn kill(&mut self) {
        if let Some(problem) = self.descendants.kill_all(&mut self.child) {
            self.report.warn(problem);
        }
    }
}
