//! The decisions of a supervisor, as a pure state machine from events and the time to actions.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::back_off::LONGEST_PAUSE;
use super::loss::{Cause, Loss};
use crate::rules::{Instant, Lateness, Lease, LossPolicy, OnLost, OnReleased, Reason};

/// The signals that stop a process, except SIGSTOP, which no process can handle.
pub(crate) const STOPPING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// Whether this signal asks a process to stop.
pub(crate) fn stops(signal: Signal) -> bool {
    STOPPING.contains(&signal)
}

/// What can happen while a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Only time has passed.
    Tick,
    /// A signal for the command arrived. `reached`: the command has it already.
    Signal { signal: Signal, reached: bool },
    /// The renewing thread has begun to ask the server at this moment.
    Asking(Instant),
    /// The renewing thread has read the server's answer at this moment.
    Renewed(Lease, Instant),
    /// A renewal has failed, for this reason. The renewer tries again.
    NotRenewed(String),
    /// The server reports that this hold does not exist.
    NotHeld(Reason),
    /// rlock itself was stopped and has been continued.
    Resumed,
    /// The command has ended. It has not been reaped.
    Ended,
    /// All that the command started has ended too.
    DescendantsGone,
}

/// What the supervisor must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Pass a signal on to the command and its process group.
    Forward(Signal),
    /// Stop rlock itself; then `Resumed`.
    Stop(Signal),
    /// Continue the command if it is stopped.
    Continue,
    ReportLoss(Loss),
    /// Report once that the lease is half over and its renewal has failed.
    ReportDelay(Loss),
    /// Report that a late renewal has succeeded, so long after the last one.
    ReportRecovery(Duration),
    /// Ask the command and all that it started to end, even if they are stopped.
    Terminate,
    /// Kill the command and all that it started.
    Kill,
}

/// The supervisor's state.
#[derive(Clone, Debug, Hash)]
pub struct Machine {
    /// As last renewed.
    pub lease: Lease,
    pub(crate) kill_after: Duration,
    pub(crate) on_lost: OnLost,
    on_released: OnReleased,
    pub unanswered: Option<String>,
    /// How late the renewing thread runs since it last renewed the lease.
    pub lateness: Lateness,
    /// Whether a delay was reported that is not over.
    pub is_late: bool,
    pub phase: Phase,
}

/// The renewing thread sleeps until the renewal of this lease, and a delay can begin only then.
fn until_renewal(lease: Lease) -> Lateness {
    Lateness::since(lease.renew_at()).asleep_until(lease.renew_at())
}

#[derive(Clone, Debug, Hash)]
pub enum Phase {
    Running,
    /// The command has been asked to end and is killed at `kill_at`.
    Terminating {
        kill_at: Instant,
        /// Whether the command itself has ended; processes that it started may remain.
        ended: bool,
    },
    /// The command was killed, or may continue without its lock: rlock only waits for it.
    Unguarded,
    Over,
    /// The script has released the lock, and runs on without it.
    Released,
}

impl Machine {
    /// Limits the time between SIGTERM and SIGKILL to a third of the TTL, another one than that of
    /// renewals. With more, rlock would have to end the command before a renewal could succeed.
    pub fn new(lease: Lease, loss_policy: LossPolicy) -> Self {
        let LossPolicy { on_lost, kill_after, on_released } = loss_policy;
        let kill_after = kill_after.min(lease.ttl().get() / 3);
        let lateness = until_renewal(lease);
        let (unanswered, is_late, phase) = (None, false, Phase::Running);
        Self { lease, kill_after, on_lost, on_released, unanswered, lateness, is_late, phase }
    }

    /// Handles what the renewing thread has learned, and then an event. The time comes in between: an
    /// answer that was read in time counts, even if this runs late. But then the lease may have
    /// expired while rlock itself was suspended.
    pub fn on(
        &mut self,
        learned: impl IntoIterator<Item = Event>,
        event: Event,
        now: Instant,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for event in learned {
            self.handle(event, now, &mut actions);
        }
        self.check_time(now, &mut actions);
        self.handle(event, now, &mut actions);
        actions
    }

    fn handle(&mut self, event: Event, now: Instant, actions: &mut Vec<Action>) {
        match event {
            Event::Renewed(lease, read_at) if read_at < self.lease.deadline() => {
                if std::mem::take(&mut self.is_late) && self.is_running() {
                    actions.push(Action::ReportRecovery(self.lease.age(now)));
                }
                self.lease = lease;
                self.unanswered = None;
                self.lateness = until_renewal(lease);
            }
            Event::Tick | Event::Renewed(..) => {}
            Event::Asking(at) => {
                self.lateness.wake(at);
                // Now, because no other event tells of this delay if the server answers at once.
                if self.lateness.explains(at).is_some() {
                    self.report_delay(at, now, actions);
                }
            }
            // The stop ended the wait for an answer: see `LastRenewal::await_until`.
            Event::NotRenewed(_) if now >= self.terminate_at() => {}
            Event::NotRenewed(reason) => {
                self.unanswered = Some(reason);
                self.lateness = self.lateness.asleep_until(now + LONGEST_PAUSE);
                self.report_delay(now, now, actions);
            }
            _ if self.is_over() => {}
            Event::Ended if self.awaits_descendants() => {}
            // The command has no time left in which it could be stopped, and must be killed on
            // time.
            Event::Signal { signal, .. } if stops(signal) && self.must_end() => {}
            Event::Signal { signal, reached } => {
                if !reached {
                    actions.push(Action::Forward(signal));
                }
                // Last, because any time may have passed when rlock is continued.
                if stops(signal) {
                    actions.push(Action::Stop(signal));
                }
            }
            // If the lease has expired meanwhile, `check_time` has just killed the command.
            Event::Resumed => actions.push(Action::Continue),
            Event::NotHeld(why) if why.is_released() && self.on_released == OnReleased::Over => {
                self.phase = Phase::Released;
            }
            Event::NotHeld(why) => {
                // After a revocation the server excludes others until the lease expires.
                let kill_at = (now + self.kill_after).min(self.lease.deadline());
                self.lose(Cause::NotHeld(why), now, kill_at, actions);
            }
            Event::Ended => match &mut self.phase {
                // What the command started has lost the lock too, and gets the same time to end.
                Phase::Terminating { ended, .. } => *ended = true,
                _ => self.phase = Phase::Over,
            },
            Event::DescendantsGone if self.awaits_descendants() => self.phase = Phase::Over,
            Event::DescendantsGone => {}
        }
    }

    fn check_time(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if now >= self.terminate_at() {
            self.lose(self.delay(now), now, self.lease.deadline(), actions);
        }
        if let Phase::Terminating { kill_at, ended } = self.phase
            && now >= kill_at
        {
            actions.push(Action::Kill);
            self.phase = if ended { Phase::Over } else { Phase::Unguarded };
        }
    }

    /// Why the lease has not been renewed until now. Both the renewing thread and the loop, which
    /// asks to be woken to terminate the command, may be late.
    fn delay(&self, now: Instant) -> Cause {
        let of_loop = Lateness::since(self.lease.renew_at()).asleep_until(self.terminate_at());
        let mut lateness = [self.lateness, of_loop].into_iter();
        Cause::Unanswered(match lateness.find_map(|it| it.explains(now)) {
            Some(not_running) => not_running.to_string(),
            None => self.unanswered.clone().unwrap_or_else(|| "no answer yet".into()),
        })
    }

    /// Reports that the lease was not renewed until `at`, unless it is early, or was reported.
    fn report_delay(&mut self, at: Instant, now: Instant, actions: &mut Vec<Action>) {
        let is_late = self.is_running() && at >= self.lease.late_at();
        if is_late && !std::mem::replace(&mut self.is_late, true) {
            actions.push(Action::ReportDelay(self.loss(self.delay(at), now)));
        }
    }

    /// Whether the command ended after it was asked to, while processes that it started may remain.
    pub fn awaits_descendants(&self) -> bool {
        matches!(self.phase, Phase::Terminating { ended: true, .. })
    }

    fn lose(&mut self, cause: Cause, now: Instant, kill_at: Instant, actions: &mut Vec<Action>) {
        if !self.is_running() {
            return;
        }
        let loss = self.loss(cause, now);
        match self.on_lost {
            // No time even to clean up: another client may hold the lock.
            OnLost::Kill if now >= kill_at => {
                actions.extend([Action::Kill, Action::ReportLoss(loss)]);
                self.phase = Phase::Unguarded;
            }
            // In this order, because a script that has ended has no stderr.
            OnLost::Kill => {
                actions.extend([Action::ReportLoss(loss), Action::Terminate]);
                self.phase = Phase::Terminating { kill_at, ended: false };
            }
            OnLost::Continue => {
                actions.push(Action::ReportLoss(loss));
                self.phase = Phase::Unguarded;
            }
        }
    }

    fn loss(&self, cause: Cause, now: Instant) -> Loss {
        let left = self.lease.deadline().since(now);
        Loss { cause, renewed_ago: self.lease.age(now), left }
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Whether the command may no longer run: it has been asked to end, or was killed.
    fn must_end(&self) -> bool {
        self.on_lost == OnLost::Kill && !self.is_running()
    }

    /// When the machine needs a `Tick` if nothing else happens.
    pub fn wake_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => Some(self.terminate_at()),
            Phase::Terminating { kill_at, .. } => Some(kill_at),
            Phase::Unguarded | Phase::Over | Phase::Released => None,
        }
    }

    /// How long to look for processes that must be asked to end. They keep half of the time until
    /// they are killed.
    pub fn search_until(&self, now: Instant) -> Instant {
        self.wake_at().map_or(now, |kill_at| now + kill_at.since(now) / 2)
    }

    /// When rlock must run even if it is stopped, because the command must be asked to end, or be
    /// killed. `None` if the command may outlive its lock.
    pub fn continue_at(&self) -> Option<Instant> {
        match self.on_lost {
            OnLost::Kill => self.wake_at(),
            OnLost::Continue => None,
        }
    }

    /// When the command must be asked to end unless the lease is renewed.
    pub(crate) fn terminate_at(&self) -> Instant {
        self.lease.terminate_at(self.kill_after)
    }

    /// Whether the command has ended and nothing remains to wait for.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over | Phase::Released)
    }

    /// Whether nothing is left to release.
    pub(crate) fn is_released(&self) -> bool {
        matches!(self.phase, Phase::Released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Ttl;

    /// A lease of 30 s, acquired at 0. Its deadline is at 29,698 ms.
    fn machine() -> Machine {
        Machine::new(lease_sent_at(0), LossPolicy::DEFAULT)
    }

    fn signal(signal: Signal) -> Event {
        Event::Signal { signal, reached: false }
    }

    fn lease_sent_at(millis: u64) -> Lease {
        Lease::new(Instant::at_millis(millis), Ttl::from_millis(30_000))
    }

    fn renewed(sent: u64) -> Event {
        Event::Renewed(lease_sent_at(sent), Instant::at_millis(sent))
    }

    fn not_renewed() -> Event {
        Event::NotRenewed("refused".into())
    }

    fn on(machine: &mut Machine, event: Event, now: Instant) -> Vec<Action> {
        match event {
            Event::Renewed(..) | Event::NotRenewed(..) => machine.on([event], Event::Tick, now),
            event => machine.on([], event, now),
        }
    }

    /// What a machine does when these events happen at their milliseconds.
    fn does(events: &[(u64, Event)]) -> Vec<String> {
        let mut machine = machine();
        let at = Instant::at_millis;
        let actions =
            events.iter().flat_map(|(now, event)| on(&mut machine, event.clone(), at(*now)));
        let told = actions.map(|action| match action {
            Action::ReportLoss(loss) => format!("lost: {loss}"),
            Action::ReportDelay(loss) => format!("late: {loss}"),
            other => format!("{other:?}"),
        });
        told.collect()
    }

    #[test]
    fn a_late_renewal_is_reported_once_and_so_is_its_end() {
        let late = "late: the lease expires in 14s and was not renewed for 15s: refused";
        let failed = [14_999, 15_000, 16_000].map(|now| (now, not_renewed()));
        let renewed = [18_000, 28_000].map(|now| (now, renewed(now)));
        assert_eq!(does(&[&failed[..], &renewed].concat()), [late, "ReportRecovery(18s)"]);
    }

    #[test]
    fn a_stop_reaches_the_command_and_stops_rlock_unless_the_command_must_end() {
        use Signal::{SIGTSTP, SIGTTIN, SIGTTOU};
        let now = Instant::at_millis(1_000);
        for stop in [SIGTSTP, SIGTTIN, SIGTTOU] {
            let mut machine = machine();
            let both = [Action::Forward(stop), Action::Stop(stop)];
            assert_eq!(machine.on([], signal(stop), now), both);
            assert_eq!(machine.on([], Event::Resumed, now), [Action::Continue]);
            let reached = Event::Signal { signal: stop, reached: true };
            assert_eq!(machine.on([], reached.clone(), now), [Action::Stop(stop)]);
            machine.on([], Event::NotHeld(Reason::unknown()), now);
            for event in [signal(stop), reached] {
                assert_eq!(machine.on([], event, now), []);
            }
        }
    }

    #[test]
    fn a_loss_that_follows_a_stop_is_explained_by_it_and_kills_in_time() {
        let lost = "lost: the lease expires in 4.6s and was not renewed for 25s: rlock was not \
            running for at least 15s (suspended, or the host was overloaded)";
        assert_eq!(does(&[(25_000, Event::Resumed)]), [lost, "Terminate", "Continue"]);
        let lost = "lost: the lease has expired and was not renewed for 1m: rlock was not running \
            for at least 50s (suspended, or the host was overloaded)";
        assert_eq!(does(&[(60_000, Event::Resumed)]), ["Kill", lost, "Continue"]);
    }

    #[test]
    fn a_delay_is_explained_by_rlock_only_if_rlock_was_late() {
        let told = |events: &[(u64, Event)]| {
            let done = does(events);
            let reasons = done.iter().filter_map(|told| told.rsplit_once(": "));
            let late = "rlock was not running for at least ";
            Vec::from_iter(reasons.map(|(_, reason)| reason.replace(late, "")))
        };
        let late = |time: &str| format!("{time} (suspended, or the host was overloaded)");
        let asking = |millis| (millis, Event::Asking(Instant::at_millis(millis)));
        let tick = |millis| (millis, Event::Tick);
        // The server is silent.
        assert_eq!(told(&[asking(10_001), tick(24_698)]), ["no answer yet"]);
        assert_eq!(told(&[asking(12_000), tick(24_698)]), ["no answer yet"]);
        // The wait for its reply ends at the same moment, and the supervisor learns of it first.
        assert_eq!(told(&[asking(10_001), (24_698, not_renewed())]), ["no answer yet"]);
        // The renewing thread, or the loop, did not run in time.
        assert_eq!(told(&[tick(24_698)]), [late("14s")]);
        assert_eq!(told(&[asking(14_999), tick(24_698)]), [late("4.9s")]);
        assert_eq!(told(&[asking(10_001), tick(60_000)]), [late("35s")]);
        // Late enough for a warning, whatever the server answers then.
        assert_eq!(told(&[asking(20_000), tick(24_698)]), [late("10s"), late("10s")]);
        assert_eq!(told(&[asking(20_000), (20_001, renewed(20_000))]), [late("10s")]);
        // Between two attempts.
        let failed = (10_010, not_renewed());
        assert_eq!(told(&[asking(10_001), failed.clone(), tick(24_698)]), [late("13s")]);
        let refused = [asking(10_001), failed, asking(10_030), (24_000, not_renewed())];
        assert_eq!(told(&[&refused[..], &[tick(24_698)]].concat()), ["refused", "refused"]);
    }
}
