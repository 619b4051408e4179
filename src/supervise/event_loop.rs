//! The event loop around what runs under a hold: it passes events to the state machine and carries
//! out its actions.
//!
//! No turn of the loop does an amount of work that something outside decides. A command may start
//! processes, send signals or print for as long as it likes: after a bounded part of that, the loop
//! looks at the renewals and at the time again.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::upkeep::Upkeep;
use crate::report::{Report, StderrWait, plain};
use crate::rules::supervisor::{Action, Event};
use crate::rules::{Instant, OnLost, show};
use crate::system::signals::{Arrived, Signals};

/// The pause between two checks for whether all descendants have ended. No descriptor announces
/// that.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// What remains of the descendants of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remaining {
    /// More of them may have ended and can be reaped at once.
    More,
    /// Only such as live.
    Living,
    Nothing,
}

/// The processes that run under a hold: a command that rlock has started, or a script that it only
/// watches.
pub(super) trait Processes {
    /// How messages call the process that all others descend from.
    fn name(&self) -> String;

    /// What these signals mean for the processes. `None` if they only ask rlock to renew the lease
    /// now.
    fn signaled(&mut self, arrived: Vec<Arrived>) -> Option<Vec<Event>>;

    /// What becomes readable when that process ends, unless SIGCHLD tells.
    fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether that process has ended.
    fn has_ended(&mut self) -> bool;

    /// Reaps some of its descendants that have ended.
    fn reap(&mut self) -> Remaining;

    /// The same, after that process has ended, and looks until a moment for those that live.
    fn reap_and_look(&mut self, until: Instant) -> Remaining;

    fn forward(&mut self, _signal: Signal) {}

    /// Continues what rlock has stopped.
    fn resume(&mut self) {}

    /// Asks all of them to end, even if they are stopped. Looks for them until a moment.
    fn terminate(&mut self, until: Instant);

    /// Kills all of them. Returns what to say if some remain.
    fn kill(&mut self) -> Option<String>;

    /// Why the process that all others descend from cannot be signaled, if so.
    fn refusal(&mut self) -> Option<Errno>;

    /// Why some of them cannot be found, if so.
    fn out_of_reach(&self) -> Option<String>;

    /// Says it where the user of these processes sees it.
    fn warn(&self, report: &Report, what: &str);
}

/// The state of one run.
pub(super) struct EventLoop<'a, P> {
    processes: &'a mut P,
    upkeep: &'a mut Upkeep,
    signals: &'a mut Signals,
    report: Report,
}

impl<'a, P: Processes> EventLoop<'a, P> {
    pub(super) fn new(
        processes: &'a mut P,
        upkeep: &'a mut Upkeep,
        signals: &'a mut Signals,
        report: &Report,
    ) -> Self {
        Self { processes, upkeep, signals, report: report.clone() }
    }

    /// Returns when the machine is over. On an error, nothing guards the processes anymore, so they
    /// are killed.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let over = self.run_to_the_end();
        if over.is_err() {
            self.kill();
        }
        over
    }

    fn run_to_the_end(&mut self) -> io::Result<()> {
        loop {
            // The process may have ended before rlock listened for SIGCHLD, or before it read a
            // signal that the process has received too, so look before the first wait.
            let until = self.turn();
            if self.upkeep.machine.is_over() {
                return Ok(());
            }
            let until = if self.signals.has_kept() { Some(Instant::now()) } else { until };
            self.upkeep.wait(self.signals, self.processes.pidfd(), until)?;
        }
    }

    /// Handles what has happened, or some of it. Returns when to look again even if nothing else
    /// happens.
    fn turn(&mut self) -> Option<Instant> {
        let failure = self.upkeep.start_thread();
        self.handle(failure.unwrap_or(Event::Tick));
        let arrived = self.signals.pending();
        if !arrived.is_empty() {
            match self.processes.signaled(arrived) {
                Some(events) => events.into_iter().for_each(|event| self.handle(event)),
                None => self.upkeep.hurry(),
            }
        }
        // Even if there are many adopted processes, which are reaped only after this.
        if self.processes.has_ended() {
            self.handle(Event::Ended);
        }
        let (now, machine) = (Instant::now(), &self.upkeep.machine);
        if machine.is_over() {
            return None;
        }
        if !machine.awaits_descendants() {
            return (self.processes.reap() == Remaining::More).then_some(now);
        }
        match self.processes.reap_and_look(machine.search_until(now)) {
            Remaining::More => return Some(now),
            Remaining::Living => return Some(now + CHECK_EVERY),
            Remaining::Nothing => self.handle(Event::DescendantsGone),
        }
        None
    }

    fn handle(&mut self, event: Event) {
        let actions = self.upkeep.on(event);
        self.report.stderr_wait = StderrWait::Short(self.upkeep.machine.wake_at());
        for action in actions {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Stop(signal) => {
                self.upkeep.stop(signal, self.signals);
                self.handle(Event::Resumed);
            }
            Action::Continue => self.processes.resume(),
            Action::Forward(signal) => {
                self.report.detail(format_args!("forwarding {signal} to the command"));
                self.processes.forward(signal);
            }
            Action::ReportLoss(loss) => {
                let (name, on_lost) = (self.processes.name(), self.upkeep.machine.on_lost);
                let then = match (on_lost, self.processes.refusal()) {
                    (OnLost::Continue, _) => format!("letting {name} finish without the lock"),
                    (OnLost::Kill, None) => format!("stopping {name}"),
                    (OnLost::Kill, Some(errno)) => {
                        let why = plain(&errno.into());
                        format!("cannot stop {name}: {why}; stop it yourself")
                    }
                };
                self.warn(&format!("{loss}; {then}"));
                if on_lost == OnLost::Kill
                    && let Some(problem) = self.processes.out_of_reach()
                {
                    self.warn(&problem);
                }
            }
            Action::ReportDelay(loss) => self.warn(&format!("{loss}; retrying")),
            Action::ReportRecovery(after) if !self.report.is_quiet() => {
                self.warn(&format!("the lease was renewed after {}", show(after)));
            }
            Action::ReportRecovery(_) => {}
            Action::Terminate => {
                self.processes.terminate(self.upkeep.machine.search_until(Instant::now()));
            }
            Action::Kill => self.kill(),
        }
    }

    fn kill(&mut self) {
        if let Some(problem) = self.processes.kill() {
            self.warn(&problem);
        }
    }

    fn warn(&self, what: &str) {
        self.processes.warn(&self.report, what);
    }
}
