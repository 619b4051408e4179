//! The decisions of a supervisor, and nothing else: events and the time come in, actions go out.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::duration::show;
use crate::lease::Lease;
use crate::lock::view::Reason;
use crate::policy::{LossPolicy, OnLost};
use crate::report::Diagnostic;
use crate::system::clock::Instant;

/// How long a command may take to stop for a ^Z. One that ignores it, or cannot stop because it
/// waits for a child that has stopped already (vfork), is stopped by force then: the job is to be
/// suspended, and the command must not run on while nobody renews its lease.
const SUSPEND_GRACE: Duration = Duration::from_millis(200);

/// What can happen while a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Nothing but time has passed.
    Tick,
    /// A signal came that is meant for the command, which it may have reached already.
    Signal { signal: Signal, reached: bool },
    /// The lease was renewed.
    Renewed(Lease),
    /// A renewal got no answer; there will be another.
    Unanswered(String),
    /// A server has said something that is worth a word only.
    Diagnostic(Diagnostic),
    /// The server says that we do not hold the lock.
    NotHeld(Reason),
    /// The command was stopped by this signal of the terminal's, or somebody else's. `ours`: the
    /// terminal is in the hands of our job.
    Stopped { signal: Signal, ours: bool },
    /// We were stopped ourselves, and go on.
    Resumed,
    /// The command has ended. It is not reaped yet.
    Ended,
    /// Nothing that the command has started is left either.
    Alone,
}

/// What is to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Pass a signal on to the command and all of its group.
    Forward(Signal),
    /// Give the terminal to the command.
    Lend,
    /// Take the terminal back if it was given away.
    TakeBack,
    /// Stop ourselves and the rest of our job; then `Resumed`.
    Stop(Signal),
    /// Let the command go on if it is stopped.
    Continue,
    /// Tell the operator.
    Tell(Loss),
    /// Ask the group to end, even if it is stopped.
    Terminate,
    /// End the group.
    Kill,
}

impl Action {
    /// What the operator is to be told.
    pub(super) fn told(&self) -> Option<&Loss> {
        match self {
            Self::Tell(loss) => Some(loss),
            _ => None,
        }
    }
}

/// Why a command may not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    cause: Cause,
    renewed_ago: Duration,
    /// Until the lease ends.
    left: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// Somebody else may have the lock by now.
    NotHeld(Reason),
    /// The lease is about to end and cannot be renewed, for the reason of the last attempt.
    Unanswered(String),
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cause, renewed_ago, left } = self;
        let renewed_ago = show(*renewed_ago);
        match cause {
            Cause::NotHeld(why) => write!(f, "the lock {why}"),
            Cause::Unanswered(reason) => {
                write!(f, "the lease could not be renewed for {renewed_ago}: {reason}; ")?;
                match left.is_zero() {
                    true => write!(f, "it has expired"),
                    false => write!(f, "it expires in {}", show(*left)),
                }
            }
        }
    }
}

/// The supervisor's state.
#[derive(Debug)]
pub(super) struct Machine {
    lease: Lease,
    kill_after: Duration,
    on_lost: OnLost,
    unanswered: Option<String>,
    /// A ^Z was passed on, and the command has not stopped for it yet; it gets until then.
    suspending: Option<Instant>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Running,
    /// The command has been asked to end and gets until then to do so.
    Stopping {
        kill_at: Instant,
        ended: bool,
    },
    /// Nothing more will be done to the command: it was killed, or may go on without its lock.
    Left,
    Over,
}

impl Machine {
    /// The time between SIGTERM and SIGKILL is never more than a third of the TTL, or the command
    /// would have to be stopped before a renewal could succeed.
    pub(super) fn new(lease: Lease, loss_policy: LossPolicy) -> Self {
        let LossPolicy { on_lost, kill_after } = loss_policy;
        let kill_after = kill_after.min(lease.ttl().get() / 3);
        Self {
            lease,
            kill_after,
            on_lost,
            unanswered: None,
            suspending: None,
            phase: Phase::Running,
        }
    }

    /// Takes in one event. Whatever it is, the time is looked at first: after a pause of rlock
    /// itself the lease may be over already.
    pub(super) fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        // A renewal that was answered before the command had to be stopped is in time.
        if let Event::Renewed(lease) = event {
            self.lease = lease;
            self.unanswered = None;
        }
        self.look_at_the_time(now, &mut actions);
        match event {
            Event::Tick | Event::Renewed(_) | Event::Diagnostic(_) => {}
            Event::Unanswered(reason) => self.unanswered = Some(reason),
            _ if self.is_over() => {}
            Event::Ended | Event::Stopped { .. } if self.awaits_the_rest() => {}
            Event::Signal { signal, reached } => {
                if signal == Signal::SIGTSTP && !self.awaits_the_rest() {
                    self.suspending = Some(now + SUSPEND_GRACE);
                }
                if !reached {
                    actions.push(Action::Forward(signal));
                }
            }
            Event::Stopped { signal, ours } => match signal {
                Signal::SIGTTIN | Signal::SIGTTOU if ours => {
                    // In this order, so that a ^Z is never for a command that is still stopped. If
                    // it touches the terminal in between, it stops once more and we come back.
                    actions.extend([Action::Continue, Action::Lend]);
                    // To a stopped process a stop is nothing, and SIGCONT makes it forget it.
                    if self.suspending.take().is_some() {
                        actions.push(Action::Forward(Signal::SIGTSTP));
                    }
                }
                Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGTSTP => {
                    self.suspending = None;
                    actions.extend([Action::TakeBack, Action::Stop(signal)]);
                }
                // Stopped by hand, to be continued by hand, as if we were not there.
                _ => {}
            },
            // If the lease ended meanwhile, the command has just been killed.
            Event::Resumed => {
                self.suspending = None;
                actions.push(Action::Continue);
            }
            Event::NotHeld(why) => {
                // Those who are kept out while it ends are so until its lease does.
                let kill_at = (now + self.kill_after).min(self.lease.deadline());
                self.lose(Cause::NotHeld(why), now, kill_at, &mut actions);
            }
            Event::Ended => {
                self.suspending = None;
                actions.push(Action::TakeBack);
                match &mut self.phase {
                    // What it has started has no lock either, and as much time to end.
                    Phase::Stopping { ended, .. } => *ended = true,
                    _ => self.phase = Phase::Over,
                }
            }
            Event::Alone => {
                if let Phase::Stopping { ended: true, .. } = self.phase {
                    self.phase = Phase::Over;
                }
            }
        }
        // Last of all: any time may have passed when we are back.
        if self.suspending.is_some_and(|until| now >= until) {
            self.suspending = None;
            let stop = Action::Stop(Signal::SIGTSTP);
            actions.extend([Action::Forward(Signal::SIGSTOP), Action::TakeBack, stop]);
        }
        actions
    }

    fn look_at_the_time(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if now >= self.stop_at() {
            let unanswered = self.unanswered.clone();
            let unanswered = unanswered.unwrap_or_else(|| "no answer yet".into());
            self.lose(Cause::Unanswered(unanswered), now, self.lease.deadline(), actions);
        }
        self.kill_if_due(now, actions);
    }

    fn kill_if_due(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let Phase::Stopping { kill_at, ended } = self.phase
            && now >= kill_at
        {
            actions.push(Action::Kill);
            self.phase = if ended { Phase::Over } else { Phase::Left };
            self.suspending = None;
        }
    }

    /// Has the command been asked to end, and did so, while what it has started may not have yet?
    pub(super) fn awaits_the_rest(&self) -> bool {
        matches!(self.phase, Phase::Stopping { ended: true, .. })
    }

    fn lose(&mut self, cause: Cause, now: Instant, kill_at: Instant, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let left = self.lease.deadline().since(now);
        let loss = Loss { cause, renewed_ago: self.lease.age(now), left };
        match self.on_lost {
            // Not a moment longer, not even to clean up: somebody else may have the lock.
            OnLost::Kill if now >= kill_at => {
                actions.extend([Action::Kill, Action::Tell(loss)]);
                self.phase = Phase::Left;
                self.suspending = None;
            }
            OnLost::Kill => {
                actions.extend([Action::Terminate, Action::Tell(loss)]);
                self.phase = Phase::Stopping { kill_at, ended: false };
            }
            OnLost::Continue => {
                actions.push(Action::Tell(loss));
                self.phase = Phase::Left;
            }
        }
    }

    /// When to come back with a `Tick` if nothing else happens.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Running => Some(self.stop_at()),
            Phase::Stopping { kill_at, .. } => Some(kill_at),
            Phase::Left | Phase::Over => None,
        };
        [phase, self.suspending].into_iter().flatten().min()
    }

    /// As it was last renewed.
    pub(super) fn lease(&self) -> Lease {
        self.lease
    }

    /// When the command has to be stopped, unless the lease is renewed.
    pub(super) fn stop_at(&self) -> Instant {
        self.lease.stop_at(self.kill_after)
    }

    /// Has the command ended?
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }
}

#[cfg(test)]
mod histories;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::Ttl;

    const KILL: LossPolicy =
        LossPolicy { on_lost: OnLost::Kill, kill_after: LossPolicy::DEFAULT_KILL_AFTER };
    const CONTINUE: LossPolicy = LossPolicy { on_lost: OnLost::Continue, ..KILL };

    /// A lease of 30 s won at 0: its deadline is at 29,698 ms.
    fn machine() -> Machine {
        Machine::new(lease_won_at(0), KILL)
    }

    fn signal(signal: Signal) -> Event {
        Event::Signal { signal, reached: false }
    }

    fn lease_won_at(millis: u64) -> Lease {
        Lease::won(Instant::at_millis(millis), Ttl::from_millis(30_000))
    }

    #[test]
    fn a_lease_that_is_renewed_lets_the_command_run() {
        let mut machine = machine();
        let renewed = Event::Renewed(lease_won_at(10_000));
        assert_eq!(machine.on(renewed, Instant::at_millis(10_001)), []);
        assert_eq!(machine.on(Event::Tick, Instant::at_millis(34_000)), []);
        assert_eq!(machine.wake_at(), Some(Instant::at_millis(39_698 - 5_000)));
    }

    #[test]
    fn a_lease_that_cannot_be_renewed_ends_the_command_before_it_ends_itself() {
        let mut machine = machine();
        machine.on(Event::Unanswered("refused".into()), Instant::at_millis(10_000));
        assert_eq!(machine.wake_at(), Some(Instant::at_millis(24_698)));
        let actions = machine.on(Event::Tick, Instant::at_millis(24_698));
        let [Action::Terminate, Action::Tell(loss)] = &actions[..] else { panic!("{actions:?}") };
        let told = "the lease could not be renewed for 24s: refused; it expires in 5s";
        assert_eq!(loss.to_string(), told);
        assert_eq!(machine.wake_at(), Some(Instant::at_millis(29_698)));
        assert_eq!(machine.on(Event::Tick, Instant::at_millis(29_698)), [Action::Kill]);
        assert!(!machine.is_over());
        machine.on(Event::Ended, Instant::at_millis(29_700));
        assert!(machine.is_over());
    }

    #[test]
    fn a_lock_that_is_lost_ends_the_command_at_once() {
        let mut machine = machine();
        let actions = machine.on(Event::NotHeld(Reason::unknown()), Instant::at_millis(10_000));
        let [Action::Terminate, Action::Tell(loss)] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!(loss.to_string(), "the lock was forgotten by the server");
        assert_eq!(machine.on(Event::Tick, Instant::at_millis(14_999)), []);
        assert_eq!(machine.on(Event::Tick, Instant::at_millis(15_000)), [Action::Kill]);
    }

    #[test]
    fn a_pause_past_the_deadline_kills_before_anything_else() {
        let mut machine = machine();
        let actions = machine.on(signal(Signal::SIGCONT), Instant::at_millis(60_000));
        assert!(matches!(
            actions[..],
            [Action::Kill, Action::Tell(_), Action::Forward(Signal::SIGCONT)]
        ));
    }

    #[test]
    fn the_terminal_is_lent_when_the_command_touches_it_and_the_job_has_it() {
        let mut machine = machine();
        let now = Instant::at_millis(1_000);
        let stopped = |signal, ours| Event::Stopped { signal, ours };
        let lent = [Action::Continue, Action::Lend];
        assert_eq!(machine.on(stopped(Signal::SIGTTIN, true), now), lent);
        assert_eq!(machine.on(stopped(Signal::SIGTTOU, true), now), lent);
        let stop = [Action::TakeBack, Action::Stop(Signal::SIGTTIN)];
        assert_eq!(machine.on(stopped(Signal::SIGTTIN, false), now), stop);
        assert_eq!(machine.on(Event::Resumed, now), [Action::Continue]);
        let stop = [Action::TakeBack, Action::Stop(Signal::SIGTSTP)];
        assert_eq!(machine.on(stopped(Signal::SIGTSTP, true), now), stop);
        assert_eq!(machine.on(stopped(Signal::SIGSTOP, true), now), []);
    }

    #[test]
    fn a_suspend_is_not_lost_on_a_command_that_waits_for_the_terminal() {
        let mut machine = machine();
        let now = Instant::at_millis(1_000);
        let suspend = Action::Forward(Signal::SIGTSTP);
        assert_eq!(machine.on(signal(Signal::SIGTSTP), now), std::slice::from_ref(&suspend));
        let stopped = Event::Stopped { signal: Signal::SIGTTIN, ours: true };
        assert_eq!(machine.on(stopped.clone(), now), [Action::Continue, Action::Lend, suspend]);
        // Once.
        assert_eq!(machine.on(stopped, now), [Action::Continue, Action::Lend]);
    }

    #[test]
    fn a_command_that_does_not_stop_for_a_suspend_is_stopped() {
        let mut machine = machine();
        machine.on(signal(Signal::SIGTSTP), Instant::at_millis(1_000));
        assert_eq!(machine.wake_at(), Some(Instant::at_millis(1_200)));
        let stop = Action::Stop(Signal::SIGTSTP);
        let force = [Action::Forward(Signal::SIGSTOP), Action::TakeBack, stop];
        assert_eq!(machine.on(Event::Tick, Instant::at_millis(1_200)), force);
        assert_eq!(machine.on(Event::Tick, Instant::at_millis(1_500)), []);
    }

    #[test]
    fn a_command_is_not_continued_before_it_is_killed_when_its_lease_has_ended() {
        let mut machine = machine();
        let actions = machine.on(Event::Resumed, Instant::at_millis(60_000));
        let kill = actions.iter().position(|action| *action == Action::Kill);
        let go_on = actions.iter().position(|action| *action == Action::Continue);
        assert!(kill.is_some() && kill < go_on, "{actions:?}");
    }

    #[test]
    fn what_the_command_leaves_behind_dies_with_a_lost_lock_and_lives_otherwise() {
        let mut lost = machine();
        lost.on(Event::NotHeld(Reason::unknown()), Instant::at_millis(1_000));
        assert_eq!(lost.on(Event::Ended, Instant::at_millis(1_100)), [Action::TakeBack]);
        assert!(lost.awaits_the_rest() && !lost.is_over());
        assert_eq!(lost.on(Event::Tick, Instant::at_millis(6_000)), [Action::Kill]);
        assert!(lost.is_over());
        let mut alone = machine();
        alone.on(Event::NotHeld(Reason::unknown()), Instant::at_millis(1_000));
        alone.on(Event::Ended, Instant::at_millis(1_100));
        assert_eq!(alone.on(Event::Alone, Instant::at_millis(1_100)), []);
        assert!(alone.is_over());
        let mut kept = machine();
        assert_eq!(kept.on(Event::Ended, Instant::at_millis(1_100)), [Action::TakeBack]);
    }

    #[test]
    fn a_command_that_may_continue_is_left_alone() {
        let mut machine = Machine::new(lease_won_at(0), CONTINUE);
        let actions = machine.on(Event::NotHeld(Reason::unknown()), Instant::at_millis(10_000));
        assert!(matches!(actions[..], [Action::Tell(_)]), "{actions:?}");
        assert_eq!(machine.on(Event::Tick, Instant::at_millis(90_000)), []);
        assert_eq!(machine.wake_at(), None);
        assert_eq!(machine.on(Event::Ended, Instant::at_millis(91_000)), [Action::TakeBack]);
    }

    #[test]
    fn the_time_to_end_is_at_most_a_third_of_the_lease() {
        let lease = Lease::won(Instant::at_millis(0), Ttl::from_millis(3_000));
        let machine = Machine::new(lease, KILL);
        assert_eq!(machine.wake_at(), Some(Instant::at_millis(2_968 - 1_000)));
    }
}
