//! The moves of a client: they carry out what the waiter, the acquisition and the decisions about
//! renewals say, as `store::quorum` does, and decide nothing.

use nix::sys::signal::Signal;

use super::client::{Doing, How, Phase};
use super::server::{ATTEMPTS, Replied, SERVERS, Sent, What};
use super::world::{IO_TIMEOUT, World};
use crate::check::property::Property;
use crate::check::time::now;
use rlock::rules::quorum::{
    Acquisition, AttemptEnd, AttemptStep, Held, MemberAnswer, MemberRequest, Outgoing, QuorumOp,
    RenewalDecision, Votes, decide_renewal,
};
use rlock::rules::servers::{Began, Run};
use rlock::rules::waiter::{Stop, WaitEnd, WaitEvent, WaitMachine, WaitStep};
use rlock::rules::{Answer, Delivery, Failure, FailureKind, Instant, Lease, Renewal, UserMessage};

impl World {
    pub(super) fn start_client(&mut self, index: usize) {
        (self.monitor.floors[index], self.monitor.older[index]) =
            (self.monitor.granted, self.status());
        let request = &self.course.scope.clients[index].request;
        let (waiter, step) = WaitMachine::new(request.ttl, None, None, now());
        let acquisition = Acquisition::new(request, SERVERS, IO_TIMEOUT, now());
        let doing = Doing::Rest(now());
        self.clients[index].phase = Phase::Acquiring(waiter, acquisition, doing);
        self.follow(index, step);
    }

    /// Carries out a waiter's step.
    fn follow(&mut self, index: usize, step: WaitStep) {
        let Phase::Acquiring(_, acquisition, doing) = &mut self.clients[index].phase else {
            return;
        };
        match step {
            WaitStep::Ask { .. } => {
                let (outgoing, step) = acquisition.begin(now());
                *doing = Doing::Attempt(now());
                self.carry_out(index, outgoing, step);
            }
            WaitStep::Sleep { at_most, .. } => {
                let until = now() + at_most;
                let (outgoing, step) = acquisition.rest(until, now());
                *doing = Doing::Sleep(until);
                self.carry_out(index, outgoing, step);
            }
            WaitStep::Rest { at } => *doing = Doing::Rest(at),
            WaitStep::Withdraw(end) => {
                self.post(index, What::Leave);
                self.on(index, WaitEvent::Withdrawn(end, Ok(())), None);
            }
            WaitStep::End(end) => {
                let how = match end {
                    WaitEnd::Granted(lease, fence, slot) => {
                        return self.hold(index, lease, (fence, slot));
                    }
                    WaitEnd::Busy(_) => How::Busy,
                    WaitEnd::Failed(_) => How::Failed,
                    WaitEnd::Stopped(_) => How::Signaled,
                    WaitEnd::Superseded(_) => {
                        self.post(index, What::Leave);
                        How::Superseded
                    }
                    _ => How::Refused,
                };
                self.clients[index].phase = Phase::Ended(how);
            }
        }
    }

    /// Tells the waiter what came of its last step.
    fn on(&mut self, index: usize, event: WaitEvent, stop: Option<Stop>) {
        if let Phase::Acquiring(waiter, ..) = &mut self.clients[index].phase {
            let (_, step) = waiter.on(event, stop, now());
            self.follow(index, step);
        }
    }

    /// As `Quorum::carry_out`.
    fn carry_out(&mut self, index: usize, outgoing: Vec<Outgoing>, step: AttemptStep) {
        for Outgoing { member, round, what } in outgoing {
            match what {
                MemberRequest::Ask(op) => {
                    self.send(index, member, What::Ask(op), round, true);
                }
                MemberRequest::Listen(at_most) => {
                    self.servers[member].listen(index, round, now() + at_most);
                }
            }
        }
        let Phase::Acquiring(_, acquisition, doing) = &mut self.clients[index].phase else {
            return;
        };
        match (step, doing) {
            (AttemptStep::Wait(until), Doing::Attempt(next) | Doing::Sleep(next)) => {
                *next = until;
                if until <= now() {
                    self.act_on_time(index);
                }
            }
            (AttemptStep::End(end), Doing::Attempt(_)) => {
                let sent = acquisition.started;
                self.attempted(index, sent, end);
            }
            (AttemptStep::End(_), _) => self.on(index, WaitEvent::Woken(Ok(())), None),
            (AttemptStep::Wait(_), Doing::Rest(_)) => {}
        }
    }

    /// As `Quorum::attempt`.
    fn attempted(&mut self, index: usize, sent: Instant, end: AttemptEnd) {
        let answer = match end {
            AttemptEnd::Granted((fence, slot)) => Ok(Answer::Granted { fence, slot }),
            AttemptEnd::Queued { view, position, sleep, .. } => {
                Ok(Answer::Queued { view, position, sleep, arrival: None, obstacle: None })
            }
            AttemptEnd::Refused(answer) => Ok(*answer),
            AttemptEnd::TooFew(usable) => {
                let Phase::Acquiring(_, acquisition, _) = &self.clients[index].phase else {
                    return;
                };
                let (votes, names) = (acquisition.votes(), std::iter::repeat(""));
                let failure = votes.too_few(names, usable);
                Err(if acquisition.may_be_known() { failure.but_maybe_executed() } else { failure })
            }
            AttemptEnd::Woken => Err(Failure::interrupted(Delivery::Pending)),
        };
        // A failure says itself whether the waiter has to withdraw the request.
        let continues =
            matches!(answer, Ok(Answer::Granted { .. } | Answer::Queued { .. }) | Err(_));
        if !continues {
            self.post(index, What::Leave);
        }
        if let (Ok(Answer::Granted { fence, slot }), Phase::Acquiring(_, acquisition, _)) =
            (&answer, &self.clients[index].phase)
        {
            let restore = What::Ask(QuorumOp::Restore((*fence, *slot)));
            for member in acquisition.not_asked_to_commit() {
                self.send(index, member, restore, 0, false);
            }
        }
        self.on(index, WaitEvent::Answered { sent, answer }, None);
    }

    fn send(&mut self, index: usize, member: usize, what: What, round: u64, awaits: bool) {
        let client = &mut self.clients[index];
        client.attempt += ATTEMPTS + 1;
        let awaited = awaits.then_some(now());
        self.servers[member].send(index, Sent { what, round, attempt: client.attempt, awaited });
    }

    /// Sends something to all servers, behind what they have not answered, without awaiting a
    /// reply.
    fn post(&mut self, index: usize, what: What) {
        for member in 0..SERVERS {
            self.servers[member].lines[index].withdraw();
            self.send(index, member, what, 0, false);
        }
    }

    pub(super) fn signal(&mut self, index: usize) {
        let Phase::Acquiring(_, acquisition, doing) = &self.clients[index].phase else { return };
        let failure = Failure::interrupted(Delivery::Pending);
        let event = match doing {
            Doing::Attempt(_) => {
                WaitEvent::Answered { sent: acquisition.started, answer: Err(failure) }
            }
            Doing::Sleep(_) => WaitEvent::Woken(Err(failure)),
            Doing::Rest(_) => WaitEvent::Woken(Ok(())),
        };
        self.on(index, event, Some(Stop::Signal(Signal::SIGTERM)));
    }

    pub(super) fn crash(&mut self, index: usize) {
        self.clients[index].phase = Phase::Ended(How::Crashed);
        self.servers.iter_mut().for_each(|server| server.lines[index].withdraw());
    }

    fn hold(&mut self, index: usize, lease: Lease, (fence, slot): Held) {
        self.granted(index, fence.0);
        self.clients[index].phase = Phase::Holding(lease, slot);
    }

    /// The command ends.
    pub(super) fn finish(&mut self, index: usize) {
        self.post(index, What::Release);
        self.clients[index].phase = Phase::Ended(How::Done);
    }

    pub(super) fn read_reply(&mut self, index: usize, member: usize) {
        let Some(Replied { round, reply, since }) = self.servers[member].lines[index].reply.take()
        else {
            return;
        };
        if let Phase::Acquiring(_, acquisition, _) = &mut self.clients[index].phase {
            let run =
                since.map(|since| Run { id: member.to_string(), since, began: Began::Started });
            let (outgoing, step) = acquisition.replied(member, round, reply, run, now());
            self.carry_out(index, outgoing, step);
        }
    }

    /// A message wakes the client.
    pub(super) fn hear(&mut self, index: usize, member: usize) {
        let server = &mut self.servers[member];
        let since = Some(server.since);
        let line = &mut server.lines[index];
        if let Some((round, _)) = line.listening.take() {
            let reply = MemberAnswer::Heard(line.mail.remove(0));
            line.reply = Some(Replied { round, reply, since });
            self.read_reply(index, member);
        }
    }

    /// The time of the last step has come.
    pub(super) fn act_on_time(&mut self, index: usize) {
        match &mut self.clients[index].phase {
            Phase::Acquiring(_, acquisition, Doing::Attempt(until) | Doing::Sleep(until))
                if *until <= now() =>
            {
                let (outgoing, step) = acquisition.progress(now());
                self.carry_out(index, outgoing, step);
            }
            Phase::Acquiring(_, _, Doing::Rest(until)) if *until <= now() => {
                self.on(index, WaitEvent::Woken(Ok(())), None);
            }
            Phase::Holding(lease, ..) if lease.deadline() <= now() => self.finish(index),
            Phase::Holding(lease, _)
                if lease.renew_at() <= now() && self.course.scope.clients[index].has('r') =>
            {
                self.renew(index);
            }
            _ => {}
        }
    }

    /// Renews the lease on all servers in one step: a renewal on one does not affect the others. As
    /// `Quorum::renew`.
    fn renew(&mut self, index: usize) {
        let Phase::Holding(lease, own) = &mut self.clients[index].phase else { return };
        let own = *own;
        let request = &self.course.scope.clients[index].request;
        let mut votes = Votes::new(SERVERS);
        for (member, server) in self.servers.iter_mut().enumerate() {
            if !server.lines[index].is_busy() {
                let failed =
                    || Failure::new(FailureKind::Unavailable, UserMessage::new("no answer"));
                votes.asked[member] = true;
                votes.votes[member] = Some(server.renew(request).ok_or_else(failed));
            }
        }
        let (lost, held) = match decide_renewal(&votes) {
            RenewalDecision::Renewed { lost, held: (fence, slot), .. } => {
                *lease = Lease::new(now(), lease.ttl());
                if slot != own {
                    self.course.breaks(Property::EachHolderHasItsSlot);
                }
                (lost, Some((fence, own)))
            }
            RenewalDecision::TooFew { lost, .. } => {
                let held = votes.values().find_map(|(_, renewal)| match renewal {
                    Renewal::Renewed { fence, .. } => Some((*fence, own)),
                    Renewal::NotHeld(_) => None,
                });
                (lost, held)
            }
            RenewalDecision::NotHeld(_) => return self.finish(index),
        };
        for (member, held) in lost.into_iter().filter_map(|lost| Some((lost, held?))) {
            self.send(index, member, What::Ask(QuorumOp::Restore(held)), 0, false);
        }
    }
}
