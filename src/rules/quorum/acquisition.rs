//! Acquires a lock on several servers for one request, as a pure state machine. The members'
//! replies and the time go in; what to ask the members comes out.
//!
//! 1. **Propose.** The request joins the queue of every member. Each member proposes a ticket. The
//!    largest ticket of a majority becomes that of the request, which restates it to all members. So
//!    all queues have the same order, up to the jitter of the network. A member *nominates* the requests
//!    at the head of its queue that its present holds admit. A nomination is only a hint.
//! 2. **Commit.** Once a majority nominates the request, it asks them for a hold with one fencing
//!    token. It has the lock once a majority has given it this hold. Two majorities have a member in
//!    common, which is the argument of Redlock:
//!    <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>. Each slot is like a
//!    separate lock: the hold is for one number, which a majority has free.
//! 3. If too few members commit, the request restates its ticket, which ends its holds on the others.
//!    The older of two requests that prevented each other is then nominated everywhere.
//!
//! While it waits, the request sleeps at every member. A message from a member that now nominates
//! it counts as a nomination, so that nothing is asked before the request can commit.
//!
//! A member that does not answer delays nothing once the others have decided.

mod committing;
mod explaining;
mod proposing;
#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::{discriminant, replace};
use std::time::Duration;

use super::majority::{grace_until, majority, needed_to_refuse};
use super::member_state::{MemberState, Members, UnderWay};
use super::votes::Votes;
use crate::rules::quorum::{Held, MemberAnswer, MemberRequest, Nomination, Proposal, QuorumOp};
use crate::rules::servers::Run;
use crate::rules::{Answer, BackOff, Delivery, Instant, Mode, Request, Slot, Ticket, View};

/// How long a request that does not wait pauses before it asks again while no request has won.
pub const UNDECIDED: BackOff = BackOff::new(Duration::from_millis(10), Duration::from_millis(300));

/// How long a request relies on a nomination without asking again: half the time after which it
/// lapses.
const NOMINATION_LASTS: Duration = Duration::from_secs(1);

/// Something to send to a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    pub member: usize,
    /// Returned with the reply.
    pub round: u64,
    pub what: MemberRequest,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptStep {
    /// Wait for a reply, until this time.
    Wait(Instant),
    End(AttemptEnd),
}

/// The end of an attempt, or of a sleep between two attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    Granted(Held),
    Queued {
        view: View,
        position: u64,
        sleep: Duration,
        /// How many members can vote, if these are too few to grant the lock to any request.
        too_few: Option<usize>,
    },
    /// Ask again.
    Woken,
    /// With an answer that is not a grant.
    Refused(Box<Answer>),
    /// Only this number of members could be used.
    TooFew(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttemptPhase {
    /// The members are asked for a position in their queues, or for a hold.
    Asking {
        since: Instant,
        majority_at: Option<Instant>,
        /// The hold, and how often its fencing token has been raised.
        hold: Option<(Held, u32)>,
    },
    /// No request has won, and this one does not wait.
    Pausing {
        until: Instant,
    },
    Resting {
        until: Instant,
    },
    Ended,
}

/// The progress of one request toward the lock.
#[derive(Clone, Debug, Hash)]
pub struct Acquisition {
    mode: Mode,
    waits: bool,
    supersedes: bool,
    /// How long the hold will last.
    lease: Duration,
    io_timeout: Duration,
    majority: usize,
    pub members: Members,
    /// The ticket on which a majority agreed.
    ticket: Option<Ticket>,
    pub phase: AttemptPhase,
    pub round: u64,
    /// When this attempt began.
    pub started: Instant,
    pub undecided: BackOff,
    /// Whether a majority has answered in this attempt.
    has_met: bool,
    /// A number below 2^16 that differs between requests: two that outbid each other leap differently.
    share: u64,
    /// What to send to the members now.
    outgoing: Vec<Outgoing>,
}

impl Acquisition {
    /// `io_timeout` bounds each attempt.
    pub fn new(request: &Request, members: usize, io_timeout: Duration, now: Instant) -> Self {
        let mut hasher = DefaultHasher::new();
        request.token.as_str().hash(&mut hasher);
        Self {
            mode: request.mode,
            waits: request.heartbeat.is_some(),
            supersedes: request.supersedes,
            lease: request.ttl.get().max(request.at_least),
            io_timeout,
            majority: majority(members),
            members: Members::new(members),
            ticket: None,
            phase: AttemptPhase::Ended,
            round: 0,
            started: now,
            undecided: UNDECIDED,
            has_met: false,
            share: hasher.finish() >> 48,
            outgoing: Vec::new(),
        }
    }

    pub fn begin(&mut self, now: Instant) -> (Vec<Outgoing>, AttemptStep) {
        (self.started, self.undecided, self.has_met) = (now, UNDECIDED, false);
        match self.may_commit(now) {
            Some(slot) if matches!(self.phase, AttemptPhase::Resting { .. }) => {
                self.commit(slot, now)
            }
            _ => self.propose(now),
        }
        self.progress(now)
    }

    /// Begins a sleep between two attempts, until `until` or until an attempt may succeed.
    pub fn rest(&mut self, until: Instant, now: Instant) -> (Vec<Outgoing>, AttemptStep) {
        self.phase = AttemptPhase::Resting { until };
        for member in 0..self.members.0.len() {
            self.let_listen(member, now);
        }
        self.progress(now)
    }

    /// Handles a reply. `run` is the run of the server that gave it.
    pub fn replied(
        &mut self,
        member: usize,
        round: u64,
        reply: MemberAnswer,
        run: Option<Run>,
        now: Instant,
    ) -> (Vec<Outgoing>, AttemptStep) {
        let Some(state) = self.members.0.get_mut(member) else {
            return (Vec::new(), AttemptStep::Wait(now));
        };
        let before = state.under_way.take();
        state.run = run.or(state.run.take());
        let (mut is_news, mut is_stale, mut answered) = (false, false, round);
        match &reply {
            MemberAnswer::Heard(nominated) => {
                (is_news, state.is_deaf) = (nominated.is_none(), false);
                if let (Some(MemberAnswer::Proposed(proposal)), true) =
                    (&mut state.last_reply, nominated.is_some())
                {
                    (proposal.nominated, proposal.sleep) = (nominated.clone(), NOMINATION_LASTS);
                }
            }
            MemberAnswer::Proposed(proposal) => {
                (state.ticket, state.clock) = (Some(proposal.ticket), Some(proposal.view.now));
                // A late answer with the agreed ticket is as good as a new one.
                let is_proposing = matches!(self.phase, AttemptPhase::Asking { hold: None, .. });
                let is_agreed = self.ticket.is_none_or(|ticket| ticket == proposal.ticket);
                is_stale = !is_agreed && round != self.round;
                if is_proposing && is_agreed {
                    answered = self.round;
                }
            }
            // It may accept the ticket on which the members have agreed since.
            MemberAnswer::AheadOfClock(_, clock) => {
                (is_stale, state.clock) = (round != self.round, Some(*clock));
            }
            // A member that does not let a request listen would end each sleep at once.
            MemberAnswer::Failed(_) => {
                is_news = before == Some(UnderWay::Listening) && !replace(&mut state.is_deaf, true);
            }
            MemberAnswer::Answer(_) => {}
        }
        if !matches!(reply, MemberAnswer::Heard(_)) {
            (state.last_reply, state.round) = (Some(reply), answered);
            state.has_nominated = false;
        }
        match self.phase {
            AttemptPhase::Resting { until } => {
                let until = if is_news { now } else { until };
                self.phase = AttemptPhase::Resting { until };
                // Until the member knows the agreed ticket, it may keep other requests out.
                if is_stale { self.ask(member) } else { self.let_listen(member, now) }
            }
            AttemptPhase::Asking { .. } if answered != self.round => self.ask(member),
            _ => {}
        }
        self.progress(now)
    }

    /// What the members have answered, for a message.
    pub fn votes(&self) -> Votes<()> {
        self.members.votes(self.round)
    }

    /// Whether any member may have the request.
    pub fn may_be_known(&self) -> bool {
        self.ticket.is_some()
            || self.members.iter().any(|state| state.ticket.is_some())
            || self.votes().delivery() != Delivery::NotExecuted
    }

    /// Handles that the time of the last step has come.
    pub fn progress(&mut self, now: Instant) -> (Vec<Outgoing>, AttemptStep) {
        let step = self.advance(now);
        (std::mem::take(&mut self.outgoing), step)
    }

    fn advance(&mut self, now: Instant) -> AttemptStep {
        loop {
            let next = match self.phase {
                AttemptPhase::Asking { since, majority_at, hold: None } => {
                    self.proposing(since, majority_at, now)
                }
                AttemptPhase::Asking { since, majority_at, hold: Some(hold) } => {
                    self.committing(since, majority_at, hold, now)
                }
                AttemptPhase::Pausing { until } if now < until => Some(AttemptStep::Wait(until)),
                AttemptPhase::Pausing { .. } => {
                    self.propose(now);
                    None
                }
                AttemptPhase::Resting { until } => Some(self.resting(until, now)),
                AttemptPhase::Ended => Some(AttemptStep::Wait(now)),
            };
            if let Some(step) = next {
                if matches!(step, AttemptStep::End(_))
                    && !matches!(self.phase, AttemptPhase::Resting { .. })
                {
                    self.phase = AttemptPhase::Ended;
                }
                return step;
            }
        }
    }

    /// Begins a round: asks every idle member for this hold, or for a position in its queue.
    fn ask_all(&mut self, hold: Option<(Held, u32)>, now: Instant) {
        self.round += 1;
        self.phase = AttemptPhase::Asking { since: now, majority_at: None, hold };
        (0..self.members.0.len()).for_each(|member| self.ask(member));
    }

    /// Asks a member, if it is idle, for what this round asks for; between rounds, for a position.
    fn ask(&mut self, member: usize) {
        let (round, state) = (self.round, &mut self.members.0[member]);
        let (op, under_way) = match (&self.phase, &mut state.last_reply) {
            (AttemptPhase::Asking { hold: Some((held, _)), .. }, _) => {
                (QuorumOp::Commit(self.ticket, *held), UnderWay::Commit)
            }
            (_, last_reply) => {
                if let Some(MemberAnswer::Proposed(proposal)) = last_reply {
                    state.has_nominated |= proposal.nominated.take().is_some();
                }
                (QuorumOp::Propose(self.ticket), UnderWay::Propose)
            }
        };
        if state.under_way.is_none() {
            state.under_way = Some(under_way);
            self.outgoing.push(Outgoing { member, round, what: MemberRequest::Ask(op) });
        }
    }

    /// The holds that members have given in this round.
    fn given(&self) -> impl Iterator<Item = Held> {
        self.members.believed().filter_map(|state| state.held(self.round))
    }

    /// Until when to await the other members in a round that began at `since`.
    fn patience(&self, since: Instant, majority_at: Option<Instant>) -> Instant {
        match majority_at {
            Some(at) => grace_until(since, at),
            None => since + self.io_timeout,
        }
    }

    /// An answer that ends the request, because enough members gave it.
    fn refusal(&self) -> Option<AttemptEnd> {
        let answers = || self.members.iter().filter_map(|state| state.answer(self.round));
        let is_final = |answer: &&Answer| {
            let alike = answers().filter(|other| discriminant(*other) == discriminant(*answer));
            let needed = needed_to_refuse(answer, self.members.0.len());
            needed.is_some_and(|needed| alike.count() >= needed)
        };
        answers().find(is_final).map(|answer| AttemptEnd::Refused(Box::new(answer.clone())))
    }

    /// The nominations of the request, if enough members nominate it.
    fn nominations(&self, now: Instant) -> Option<Vec<&Nomination>> {
        let nominations = self.members.voting(MemberState::nominated, self.lease, now);
        (nominations.len() >= self.majority).then_some(nominations)
    }

    /// The slot for which the request may commit, if enough members nominate it; the inner `None`
    /// in another mode. The n-th request in the queue takes the n-th number that a majority has free.
    /// n is the smallest position on any member: where requests before it hold slots already, a
    /// member counts fewer.
    fn may_commit(&self, now: Instant) -> Option<Option<Slot>> {
        let nominations = self.nominations(now)?;
        let Some(slots) = self.mode.slots() else { return Some(None) };
        let position = nominations.iter().map(|it| it.position).min()?;
        let is_free = |slot: &Slot| {
            let free = nominations.iter().filter(|it| it.taken.binary_search(slot).is_err());
            free.count() >= self.majority
        };
        let mut free = (1..=slots.get()).filter_map(Slot::new).filter(is_free);
        free.nth(position.saturating_sub(1) as usize).map(Some)
    }

    /// How many members have not answered a request of this round or of an earlier one.
    fn open(&self) -> usize {
        let is_open = |it: UnderWay| it != UnderWay::Listening;
        self.members.iter().filter(|state| state.under_way.is_some_and(is_open)).count()
    }

    /// The members that still owe an answer to a proposal, so that no commit was sent to them.
    pub fn not_asked_to_commit(&self) -> Vec<usize> {
        let proposes =
            |member: &usize| self.members.0[*member].under_way == Some(UnderWay::Propose);
        (0..self.members.0.len()).filter(proposes).collect()
    }

    /// While the request sleeps, a member that does not nominate it listens for a message. One that
    /// answered a commit too late is asked again, once, which also ends a hold.
    fn let_listen(&mut self, member: usize, now: Instant) {
        let AttemptPhase::Resting { until } = self.phase else { return };
        let round = self.round;
        let state = &mut self.members.0[member];
        match &state.last_reply {
            _ if state.under_way.is_some() => {}
            Some(MemberAnswer::Answer(_)) if state.round != round => self.ask(member),
            Some(MemberAnswer::Proposed(Proposal { nominated: None, sleep, .. }))
                if now < until =>
            {
                state.under_way = Some(UnderWay::Listening);
                self.outgoing.push(Outgoing { member, round, what: MemberRequest::Listen(*sleep) });
            }
            _ => {}
        }
    }

    fn resting(&mut self, until: Instant, now: Instant) -> AttemptStep {
        if self.nominations(now).is_some() || now >= until {
            return AttemptStep::End(AttemptEnd::Woken);
        }
        // A nomination lapses unless the request asks again in time.
        let any_nominated = self.members.iter().any(|state| state.nominated().is_some());
        let until = if any_nominated { until.min(now + NOMINATION_LASTS) } else { until };
        self.phase = AttemptPhase::Resting { until };
        AttemptStep::Wait(until)
    }
}
