//! The moves of a client: they carry out what the waiter, the renewals, the supervisor and the
//! attempts to release decide, and decide nothing.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::client::{Client, Pending, Phase};
use super::connection::{Awaited, Reply, What, unreachable};
use super::world::World;
use crate::check::time::now;
use rlock::rules::renewals::Schedule;
use rlock::rules::supervisor::{self, Machine};
use rlock::rules::waiter::{Stop, WaitEnd, WaitEvent, WaitMachine, WaitStep};
use rlock::rules::{
    Attempts, Delivery, Failure, FailureKind, Instant, Lease, LossPolicy, Seen, Slot, Ticket,
    UserMessage, Verdict,
};

/// Less than a lease.
const WAIT_LIMIT: Duration = Duration::from_secs(2);

impl World {
    pub(super) fn start_client(&mut self, index: usize) {
        let terms = &self.course.scope.clients[index];
        let until = terms.has('w').then(|| now() + WAIT_LIMIT);
        let (waiter, step) = WaitMachine::new(terms.request.ttl, until, until, now());
        self.clients[index].phase = Phase::Waiting(waiter, Pending::Answer(None, None));
        self.follow(index, step);
    }

    /// Carries out a waiter's step.
    fn follow(&mut self, index: usize, step: WaitStep) {
        let pending = match step {
            WaitStep::Ask { seen, arrival } => {
                self.pend(index, Pending::Answer(seen.clone(), arrival));
                return self.ask(index, seen, arrival, now());
            }
            WaitStep::Sleep { at_most, .. } => Pending::Sleep(now() + at_most),
            WaitStep::Rest { at } => Pending::Rest(at),
            WaitStep::Withdraw(end) => {
                self.pend(index, Pending::Withdrawal(end));
                return self.send(index, What::Leave, now());
            }
            WaitStep::End(WaitEnd::Granted(lease, _, slot)) => {
                return match self.clients[index].signaled {
                    true => self.release(index, lease, now()),
                    false => self.hold(index, lease, slot),
                };
            }
            WaitStep::End(_) => return self.stop(index, Phase::Ended),
        };
        self.pend(index, pending);
    }

    /// Makes one attempt at the lock. A lease counts from the first one, at `sent`.
    fn ask(&mut self, index: usize, seen: Option<Seen>, arrival: Option<Ticket>, sent: Instant) {
        self.clients[index].attempt += 1;
        let attempt = self.clients[index].attempt;
        self.send(index, What::Acquire { attempt, seen, arrival }, sent);
    }

    fn pend(&mut self, index: usize, next: Pending) {
        if let Phase::Waiting(_, pending) = &mut self.clients[index].phase {
            *pending = next;
        }
    }

    fn tell_waiter(&mut self, index: usize, event: WaitEvent) {
        let client = &mut self.clients[index];
        let signal = client.signaled.then_some(Stop::Signal(Signal::SIGTERM));
        if let Phase::Waiting(waiter, _) = &mut client.phase {
            let (_, step) = waiter.on(event, signal, now());
            self.follow(index, step);
        }
    }

    fn hold(&mut self, index: usize, lease: Lease, slot: Option<Slot>) {
        let client = &mut self.clients[index];
        client.mail = false;
        client.slot = slot;
        let machine = Machine::new(lease, LossPolicy::DEFAULT);
        let kill_after = LossPolicy::DEFAULT.kill_after.min(lease.ttl().get() / 3);
        client.phase = Phase::Holding(machine, Schedule::new(lease, kill_after, Duration::ZERO));
    }

    fn tell_supervisor(&mut self, index: usize, learned: Option<supervisor::Event>, at: Instant) {
        let Phase::Holding(machine, _) = &mut self.clients[index].phase else { return };
        let is_killed =
            machine.on(learned, supervisor::Event::Tick, at).contains(&supervisor::Action::Kill);
        if is_killed {
            self.end_command(index, at);
            // All that the command started dies with it.
            let scope = self.course.scope;
            for inner in (0..self.clients.len()).filter(|_| index == 0) {
                if scope.clients[inner].has('i') && self.clients[inner].is_at_work() {
                    self.stop(inner, Phase::Crashed);
                    self.monitor.died(inner);
                }
            }
        }
    }

    pub(super) fn end_command(&mut self, index: usize, at: Instant) {
        let Phase::Holding(machine, _) = &mut self.clients[index].phase else { return };
        machine.on([], supervisor::Event::Ended, at);
        if machine.awaits_descendants() {
            machine.on([], supervisor::Event::DescendantsGone, at);
        }
        assert!(machine.is_over(), "the command has ended");
        let lease = machine.lease;
        // Cuts a renewal short.
        self.clients[index].connection.interrupt();
        self.release(index, lease, at);
    }

    fn release(&mut self, index: usize, lease: Lease, at: Instant) {
        let attempts = Attempts::new(Some(lease.deadline()), at);
        self.clients[index].phase = Phase::Releasing(attempts, None);
        self.send(index, What::Release, now());
    }

    /// Sends a request. One that cannot reach the server fails at once.
    fn send(&mut self, index: usize, what: What, sent: Instant) {
        let client = &mut self.clients[index];
        if client.cut {
            return self.answered(index, now(), Err(unreachable(Delivery::NotExecuted)));
        }
        client.connection.send(what, sent);
    }

    pub(super) fn read_reply(&mut self, index: usize) {
        let connection = &mut self.clients[index].connection;
        match connection.take_reply() {
            Some((Reply::Refused, sent)) => {
                connection.close();
                let refused = Failure::new(FailureKind::NotHere, UserMessage::new("is a replica"));
                self.answered(index, sent, Err(refused));
            }
            Some((reply, sent)) => self.answered(index, sent, Ok(reply)),
            None => {}
        }
    }

    /// What the client awaited has been answered, or has failed.
    fn answered(&mut self, index: usize, sent: Instant, answer: Result<Reply, Failure>) {
        // A server of the checker gives no other reply, and nothing fails that nobody sent.
        let unawaited = |reply: Reply| -> ! { panic!("{reply:?} was not awaited") };
        match &mut self.clients[index].phase {
            Phase::Waiting(_, Pending::Withdrawal(end)) => {
                let event = WaitEvent::Withdrawn(end.clone(), answer.map(drop));
                self.tell_waiter(index, event);
            }
            Phase::Waiting(_, pending) => match (answer, pending) {
                // As `store::decided` does, though that gives up after many attempts.
                (Ok(Reply::Verdict(Verdict::Again)), Pending::Answer(seen, arrival)) => {
                    let (seen, arrival) = (seen.clone(), *arrival);
                    self.ask(index, seen, arrival, sent);
                }
                (answer, _) => {
                    let answer = answer.map(|reply| match reply {
                        Reply::Verdict(Verdict::Answer(answer)) => answer,
                        reply => unawaited(reply),
                    });
                    self.tell_waiter(index, WaitEvent::Answered { sent, answer });
                }
            },
            Phase::Holding(_, schedule) => {
                let renewal = answer.map(|reply| match reply {
                    Reply::Renewal(renewal) => renewal,
                    reply => unawaited(reply),
                });
                let event = schedule.answered(sent, renewal, now());
                // Another step of a second makes no difference to them.
                (schedule.took, schedule.connected_in) = Default::default();
                if let Some(event) = event {
                    self.tell_supervisor(index, Some(event), now());
                }
            }
            Phase::Releasing(attempts, again) => {
                let release = answer.map(|reply| match reply {
                    Reply::Release(release) => release,
                    reply => unawaited(reply),
                });
                match attempts.answered(sent, release, now()) {
                    Break(_) => self.stop(index, Phase::Ended),
                    Continue((_, at)) => *again = Some(at),
                }
            }
            phase => panic!("nothing was awaited in {phase:?}"),
        }
    }

    pub(super) fn wake(&mut self, index: usize) {
        self.clients[index].mail = false;
        self.tell_waiter(index, WaitEvent::Woken(Ok(())));
    }

    pub(super) fn time_out(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let is_undo = matches!(
            client.phase,
            Phase::Releasing(..) | Phase::Waiting(_, Pending::Withdrawal(_))
        );
        let sent = client.connection.time_out(is_undo).unwrap_or(now());
        self.answered(index, sent, Err(unreachable(Delivery::Pending)));
    }

    pub(super) fn break_off(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let was_asleep = client.is_asleep();
        let awaited = client.connection.awaited.take();
        client.connection.close();
        match awaited {
            // One that is cut off cannot repeat its request.
            Some(Awaited { sent, again: Some(request) }) if !client.cut => {
                client.connection.send(request, sent);
            }
            Some(Awaited { sent, .. }) => {
                self.answered(index, sent, Err(unreachable(Delivery::Lost)));
            }
            None if was_asleep => {
                self.tell_waiter(index, WaitEvent::Woken(Err(unreachable(Delivery::Lost))));
            }
            None => {}
        }
    }

    pub(super) fn signal(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.signaled = true;
        let Phase::Waiting(_, pending) = &client.phase else { return };
        match pending {
            Pending::Answer(..) => {
                let sent = client.connection.interrupt().unwrap_or(now());
                let answer = Err(Failure::interrupted(Delivery::Pending));
                self.tell_waiter(index, WaitEvent::Answered { sent, answer });
            }
            // A blocking command ends with its connection.
            Pending::Sleep(_) => {
                client.connection.close();
                let interrupted = Err(Failure::interrupted(Delivery::Pending));
                self.tell_waiter(index, WaitEvent::Woken(interrupted));
            }
            Pending::Rest(_) => self.tell_waiter(index, WaitEvent::Woken(Ok(()))),
            Pending::Withdrawal(_) => {}
        }
    }

    pub(super) fn crash(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.waits() {
            self.monitor.shaken = true;
        }
        self.stop(index, Phase::Crashed);
        self.monitor.died(index);
    }

    /// The process ends. What it has sent may still arrive.
    fn stop(&mut self, index: usize, phase: Phase) {
        let client = &mut self.clients[index];
        client.connection.close();
        let connection = std::mem::take(&mut client.connection);
        *client = Client { phase, connection, ..Client::default() };
        self.monitor.ended(index);
    }

    pub(super) fn resume(&mut self, index: usize) {
        self.clients[index].paused = false;
        self.supervise(index, now());
        self.act_on_time(index);
    }

    /// Lets the supervisor act on the time that has passed, at the moment that it had set, or at
    /// `earliest` if that is later.
    pub(super) fn supervise(&mut self, index: usize, earliest: Instant) {
        while let Client { paused: false, phase: Phase::Holding(machine, _), .. } =
            &mut self.clients[index]
            && let Some(at) = machine.wake_at().filter(|at| *at <= now())
        {
            self.tell_supervisor(index, None, at.max(earliest));
        }
    }

    /// Does what is due: a waiter asks again, a lease is renewed, a release is repeated.
    pub(super) fn act_on_time(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.paused {
            return;
        }
        let is_idle = client.connection.awaited.is_none();
        match &mut client.phase {
            Phase::Waiting(_, Pending::Sleep(until) | Pending::Rest(until)) if *until <= now() => {
                self.tell_waiter(index, WaitEvent::Woken(Ok(())));
            }
            Phase::Holding(_, schedule)
                if is_idle && schedule.next.is_some_and(|next| next <= now()) =>
            {
                self.send(index, What::Renew, now());
            }
            Phase::Releasing(_, again) if again.is_some_and(|again| again <= now()) => {
                *again = None;
                self.send(index, What::Release, now());
            }
            _ => {}
        }
    }
}
