//! One server of the quorum, and what is under way between it and each client.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use crate::check::calls::Calls;
use crate::check::property::is_in_use;
use crate::check::scope::whose;
use crate::check::shift::Shift;
use crate::check::time::{TICK, now};
use rlock::rules::model::lock::Origin;
use rlock::rules::model::{Lock, Message};
use rlock::rules::quorum::{MemberAnswer, Nomination, QuorumOp};
use rlock::rules::{Delivery, Failure, Instant, Renewal, Request, UserMessage, Verdict};

/// How many servers the quorum has.
pub(super) const SERVERS: usize = 3;

/// How far the clock of a server that is ahead is ahead.
pub(super) const AHEAD: Duration = Duration::from_secs(2 * 24 * 3_600);

/// How many attempts one order may take.
pub(super) const ATTEMPTS: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Up,
    /// It refuses connections, forever.
    Dead,
    /// Requests pile up until it thaws.
    Frozen,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Server {
    pub(super) state: State,
    /// What its clock always shows: when time passes, all else moves back. In milliseconds.
    pub(super) clock: u64,
    pub(super) lock: Lock,
    /// Since when it counts as the master that it is.
    pub(super) since: Instant,
    pub(super) promoted: Promoted,
    /// A replica that receives nothing more, and will be promoted.
    pub(super) replica: Option<Replica>,
    /// The lock on a former master that holders can still reach.
    pub(super) old: Option<Lock>,
    /// One for each client.
    pub(super) lines: Vec<Line>,
}

/// What is known of a promotion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Promoted {
    #[default]
    No,
    /// Nothing shows it.
    Hidden,
    /// Nobody has asked since, so it has no mark.
    Unmarked,
    Marked,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Replica {
    pub(super) lock: Lock,
    /// The fault that this is, by its letter in a scope.
    pub(super) fault: char,
}

/// What is under way between the server and one client.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Line {
    /// In order.
    pub(super) requests: Vec<Sent>,
    /// What old connections still carry, in order.
    pub(super) late: Vec<Sent>,
    pub(super) reply: Option<Replied>,
    /// The client waits for a message: the round, and until when.
    pub(super) listening: Option<(u64, Instant)>,
    /// Messages to the client.
    pub(super) mail: Vec<Option<Nomination>>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Sent {
    pub(super) what: What,
    pub(super) round: u64,
    pub(super) attempt: u64,
    /// When it was sent, if the client awaits a reply.
    pub(super) awaited: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Ask(QuorumOp),
    Release,
    Leave,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Replied {
    pub(super) round: u64,
    pub(super) reply: MemberAnswer,
    /// When the run of the server began, if it answered.
    pub(super) since: Option<Instant>,
}

impl Server {
    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Executes a request of a client, and puts the reply under way if the client awaits it.
    /// Returns whether another client is now believed alive for longer than before.
    pub(super) fn execute(&mut self, client: usize, request: &Request, sent: &Sent) -> bool {
        let before = self.lock.queue.clone();
        if matches!((self.promoted, sent.what), (Promoted::Unmarked, What::Ask(_))) {
            (self.promoted, self.since) = (Promoted::Marked, now());
        }
        let mut calls = Calls { lock: &mut self.lock, now: self.clock, is_replica: false };
        let line = &mut self.lines[client];
        match sent.what {
            What::Ask(op) => {
                let reply = ask(&mut calls, request, op, sent);
                line.mail.clear();
                if sent.awaited.is_some() {
                    line.reply =
                        Some(Replied { round: sent.round, reply, since: Some(self.since) });
                }
            }
            What::Release => drop(calls.release(request)),
            What::Leave => {
                calls.leave(request);
                line.mail.clear();
            }
        }
        self.deliver_mail();
        self.lock.queue.iter().any(|waiter| {
            let mut others = before.iter().filter(|old| old.token != request.token.as_str());
            others.any(|old| old.token == waiter.token && old.alive < waiter.alive)
        })
    }

    /// Renews a hold, if the server answers.
    pub(super) fn renew(&mut self, request: &Request) -> Option<Renewal> {
        let is_there = |old: &&mut Lock| is_in_use(&request.token, old, self.clock);
        let lock = self.old.as_mut().filter(is_there).unwrap_or(&mut self.lock);
        let mut calls = Calls { lock, now: self.clock, is_replica: false };
        let renewal = (self.state == State::Up).then(|| calls.renew(request));
        self.deliver_mail();
        renewal
    }

    /// Puts what the last call has sent under way.
    fn deliver_mail(&mut self) {
        for mail in std::mem::take(&mut self.lock.mail) {
            let to = whose(&mail.token);
            let nominated = match mail.message {
                Message::Nominated(nomination) => Some(nomination),
                Message::Head | Message::Look => None,
            };
            self.lines[to].mail.push(nominated);
        }
    }

    /// A client sends something.
    pub(super) fn send(&mut self, client: usize, sent: Sent) {
        let line = &mut self.lines[client];
        match self.state {
            State::Dead => line.fail(&sent, unreachable(Delivery::NotExecuted)),
            State::Up | State::Frozen => line.requests.push(sent),
        }
    }

    /// A client waits for a message.
    pub(super) fn listen(&mut self, client: usize, round: u64, until: Instant) {
        let line = &mut self.lines[client];
        match self.state {
            State::Dead => line.reply = Some(failed(round, unreachable(Delivery::NotExecuted))),
            State::Up | State::Frozen => line.listening = Some((round, until)),
        }
    }

    /// Its name leads to its replica from now on.
    pub(super) fn fail_over(&mut self) {
        let Some(Replica { lock, fault }) = self.replica.take() else { return };
        let old = std::mem::replace(&mut self.lock, lock);
        match fault {
            'q' => self.promoted = Promoted::Hidden,
            'm' => (self.old, self.promoted) = (Some(old), Promoted::Unmarked),
            _ => self.promoted = Promoted::Unmarked,
        }
        self.break_off();
    }

    /// All states of the lock that are still somewhere.
    pub(super) fn locks(&mut self) -> impl Iterator<Item = &mut Lock> {
        let replica = self.replica.iter_mut().map(|replica| &mut replica.lock);
        [&mut self.lock].into_iter().chain(&mut self.old).chain(replica)
    }

    /// Breaks all connections, for good or because the server restarts.
    pub(super) fn break_off(&mut self) {
        for line in &mut self.lines {
            line.late.clear();
            line.mail.clear();
            for sent in std::mem::take(&mut line.requests) {
                line.fail(&sent, unreachable(Delivery::Pending));
            }
            if let Some((round, _)) = line.listening.take() {
                line.reply = Some(failed(round, unreachable(Delivery::NotExecuted)));
            }
        }
    }

    /// How many messages from a client, and to one that reads them, time would delay.
    pub(super) fn load(&self, client: usize, reads: bool) -> u8 {
        let line = &self.lines[client];
        let requests = if self.is_up() { line.requests.len() as u8 } else { 0 };
        requests + u8::from(reads && line.reply.is_some()) + u8::from(reads && self.hears(client))
    }

    /// Whether a message is under way to a client that waits for it.
    pub(super) fn hears(&self, client: usize) -> bool {
        let line = &self.lines[client];
        self.is_up() && line.listening.is_some() && !line.mail.is_empty()
    }
}

impl Line {
    /// Whether the client awaits something, so that it sends nothing else.
    pub(super) fn is_busy(&self) -> bool {
        !self.requests.is_empty() || self.reply.is_some() || self.listening.is_some()
    }

    /// The client ends.
    pub(super) fn withdraw(&mut self) {
        (self.reply, self.listening) = (None, None);
        self.requests.iter_mut().for_each(|sent| sent.awaited = None);
    }

    /// Moves all times of the client back.
    pub(super) fn shift(&mut self, back: Duration) {
        self.requests.iter_mut().for_each(|sent| sent.awaited.shift(back));
        self.listening.iter_mut().for_each(|(_, until)| until.shift(back));
    }

    /// A request does not arrive.
    fn fail(&mut self, sent: &Sent, failure: Failure) {
        if sent.awaited.is_some() {
            self.reply = Some(failed(sent.round, failure));
        }
    }

    /// Time has passed: what a frozen server has not answered in time fails, but may still arrive.
    pub(super) fn time_out(&mut self, io_timeout: Duration, is_up: bool) {
        let is_late = |sent: &Sent| sent.awaited.is_some_and(|at| at + io_timeout <= now());
        if self.requests.iter().any(is_late) {
            let late: Vec<Sent> = std::mem::take(&mut self.requests);
            late.iter()
                .filter(|sent| is_late(sent))
                .for_each(|sent| self.fail(sent, unreachable(Delivery::Pending)));
            self.late.extend(late.into_iter().map(|sent| Sent { awaited: None, ..sent }));
        }
        if let Some((round, until)) = self.listening {
            if is_up && until <= now() {
                self.listening = None;
                self.reply = Some(Replied { round, reply: MemberAnswer::Heard(None), since: None });
            } else if until + io_timeout <= now() {
                self.listening = None;
                self.reply = Some(failed(round, unreachable(Delivery::Pending)));
            }
        }
    }
}

fn unreachable(delivery: Delivery) -> Failure {
    Failure::unreachable(UserMessage::new("no answer"), delivery)
}

fn failed(round: u64, failure: Failure) -> Replied {
    Replied { round, reply: MemberAnswer::Failed(failure), since: None }
}

/// As `store::quorum::acquire` asks a member. The reply to a late request is not awaited.
fn ask(calls: &mut Calls<'_>, request: &Request, op: QuorumOp, sent: &Sent) -> MemberAnswer {
    let heartbeat = request.heartbeat.filter(|_| !matches!(op, QuorumOp::Restore(_)));
    let request = Request { heartbeat, ..request.clone() };
    for more in 0..ATTEMPTS {
        match calls.vote(&request, op, sent.attempt + more) {
            Break(Verdict::Again) if sent.awaited.is_some() => {}
            Break(Verdict::Again) => break,
            Break(Verdict::Answer(answer)) => return MemberAnswer::Answer(answer),
            Continue(mut proposal) => {
                // Time passes only in ticks.
                let ticks = proposal.sleep.as_nanos().div_ceil(TICK.as_nanos()) as u32;
                proposal.sleep = TICK * ticks;
                return MemberAnswer::Proposed(proposal);
            }
            Break(Verdict::AheadOfClock { now, .. }) => {
                return MemberAnswer::AheadOfClock(AHEAD, now);
            }
        }
    }
    MemberAnswer::Heard(None)
}

/// Whether a token has a place with an agreed ticket.
pub(super) fn has_agreed_place(lock: &Lock, token: &str) -> bool {
    let is_agreed = |origin| origin == Origin::Agreed;
    lock.queue.iter().any(|waiter| waiter.token == token && is_agreed(waiter.origin))
}
