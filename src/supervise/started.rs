//! A command that rlock starts and runs to its end under a hold.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{getpgrp, getpid, getsid};

use super::child::Child;
use super::command::{Command, not_started};
use super::descendants::Descendants;
use super::event_loop::{EventLoop, Processes, Remaining};
use super::group::OwnGroup;
use super::renewer::RenewableHold;
use super::upkeep::Upkeep;
use crate::error::Error;
use crate::exit::Exit;
use crate::report::Report;
use crate::rules::supervisor::{Event, stops};
use crate::rules::{Instant, Lease, LockOutcome, LossPolicy};
use crate::store::Store;
use crate::system::inherited::Inherited;
use crate::system::signals::{self, Arrived, Signals};
use crate::system::spawn::NotStarted;

/// How a command ended that was started.
pub(crate) struct Completion {
    /// How rlock ends, so that its caller sees how the command ended.
    pub(crate) exit: Result<Exit, Error>,
    /// Whether the lock was kept until then.
    pub(crate) lock: LockOutcome,
    /// Whether rlock has terminated it.
    pub(crate) was_terminated: bool,
    /// A signal that asks the command to end, but arrived after it had ended.
    pub(crate) late: Option<Signal>,
    /// The lease as last renewed.
    pub(crate) lease: Lease,
}

/// A command, and the hold under which it runs.
pub(crate) struct Guarded<'a> {
    pub(crate) command: &'a Command,
    pub(crate) inherited: Inherited,
    pub(crate) hold: RenewableHold,
    pub(crate) loss_policy: LossPolicy,
}

/// Runs the command to its end, renews the lease meanwhile and passes signals on. Returns the store
/// for the release. An error means that the command was never started.
pub(crate) fn run(
    guarded: Guarded<'_>,
    store: Box<dyn Store>,
    signals: &mut Signals,
    report: &Report,
) -> (Box<dyn Store>, Result<Completion, Error>) {
    let Guarded { command, inherited, hold, loss_policy } = guarded;
    let token = hold.token.clone();
    let mut upkeep = match Upkeep::prepare(hold, loss_policy, report) {
        Ok(upkeep) => upkeep,
        Err(error) => return (store, Err(error)),
    };
    // The order matters: what may fail comes while nothing runs, and rlock listens and adopts before
    // the command can end or leave orphans.
    let started = signals.listen_for_a_command().map_err(NotStarted::from).and_then(|()| {
        let leader = command.group.as_ref().map(OwnGroup::id);
        let descendants = Descendants::adopt(token, leader)?;
        let start_before = upkeep.machine.terminate_at();
        let child = Child::start(command, signals, inherited, start_before)?;
        Ok(Started { child, descendants, late: None, was_terminated: false })
    });
    let mut started = match started {
        Ok(started) => started,
        Err(why) => return (store, Err(not_started(why, command))),
    };
    upkeep.take_over(store, |problem| report.warn(problem));
    let over = EventLoop::new(&mut started, &mut upkeep, signals, report).run();
    // The lease is renewed until the command is gone, because only then may it be released.
    let Started { child, late, was_terminated, .. } = started;
    let ended = child.wait();
    let (lock, lease) = (upkeep.lock, upkeep.machine.lease);
    let store = upkeep.end();
    let exit = over
        .map_err(|error| Error::system("cannot wait for events", error))
        .and(ended.map_err(|error| Error::system("cannot wait for the command", error)));
    (store, Ok(Completion { exit, lock, was_terminated, late, lease }))
}

/// The command, and what it has started.
struct Started<'a> {
    child: Child<'a>,
    descendants: Descendants,
    late: Option<Signal>,
    was_terminated: bool,
}

impl Started<'_> {
    /// Notes that rlock terminates the command, unless that has ended or refuses signals.
    fn note_termination(&mut self) {
        self.was_terminated |= !self.child.has_ended() && self.refusal().is_none();
    }
}

impl Processes for Started<'_> {
    fn name(&self) -> String {
        "the command".into()
    }

    fn signaled(&mut self, arrived: Vec<Arrived>) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        // Last, because rlock stops there. Once is enough: the kernel too drops other stop signals
        // when it continues a process.
        let mut stop = None;
        for Arrived { signal, by_terminal, is_early } in arrived {
            // The loop looks at the command and its descendants in any case.
            if signal == Signal::SIGCHLD {
                continue;
            }
            let to_group = by_terminal && self.child.shares_group();
            // The terminal is gone, and the kernel tells only the leader of its session. When that
            // ends, as flock(1) does, the kernel tells the whole group.
            let only_leader = signal == Signal::SIGHUP && getsid(None) == Ok(getpid());
            if to_group && only_leader {
                // As the kernel does: a stopped process is continued to see the hangup.
                for signal in [Signal::SIGHUP, Signal::SIGCONT] {
                    let _ = killpg(getpgrp(), signal);
                }
            }
            // One that was sent before the command existed has not reached it.
            let reached = to_group && (only_leader || !is_early);
            if signals::asks_to_end(signal) && !reached && self.child.has_ended() {
                self.late = Some(signal);
            }
            let event = Event::Signal { signal, reached };
            if stops(signal) { stop = Some(event) } else { events.push(event) }
        }
        events.extend(stop);
        Some(events)
    }

    fn has_ended(&mut self) -> bool {
        self.child.has_ended()
    }

    fn reap(&mut self) -> Remaining {
        self.descendants.reap(&self.child)
    }

    fn reap_and_look(&mut self, until: Instant) -> Remaining {
        self.descendants.reap_and_look(&mut self.child, until)
    }

    fn forward(&mut self, signal: Signal) {
        self.child.signal(signal);
    }

    fn resume(&mut self) {
        self.child.resume();
    }

    fn terminate(&mut self, until: Instant) {
        self.note_termination();
        self.descendants.terminate(&mut self.child, until);
    }

    fn kill(&mut self) -> Option<String> {
        self.note_termination();
        self.descendants.kill_all(&mut self.child)
    }

    fn refusal(&mut self) -> Option<Errno> {
        self.child.refusal()
    }

    fn out_of_reach(&self) -> Option<String> {
        self.descendants.out_of_reach()
    }

    fn warn(&self, report: &Report, what: &str) {
        report.warn(what);
    }
}
