//! Carries out what `rules::quorum::Acquisition` decides: sends its outgoing to the members, and
//! tells it their replies.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use super::member::{Member, MemberReply};
use super::member_store::MemberStore;
use super::{Granted, Quorum, cannot_query};
use crate::report::Diagnostic;
use crate::rules::FailureKind::{Interrupted, Misconfigured, Unavailable};
use crate::rules::quorum::{
    Acquisition, AttemptEnd, AttemptStep, MemberAnswer, MemberRequest, Nomination, Outgoing,
    Proposal, QuorumOp, majority,
};
use crate::rules::servers::Run;
use crate::rules::{
    Answer, Delivery, Failure, Fence, Instant, Request, Token, UserMessage, Verdict, show,
};
use crate::store::blocking::received;
use crate::store::{Interrupt, Store, attempt_number, until_decided};
use crate::system::channel::{Receiver, Sender, channel};

/// Some JSON readers cannot represent larger numbers exactly, and no clock reaches this number of
/// microseconds before the year 2255.
const TOO_LARGE: Fence = Fence(1 << 53);

/// A request on its way to the lock.
pub(super) struct Attempt {
    token: Token,
    acquisition: Acquisition,
    reply_sender: Sender<MemberReply<TaggedReply>>,
    replies: Receiver<MemberReply<TaggedReply>>,
    /// Whether the user knows that some servers cannot vote yet.
    is_noted: bool,
}

/// A member's reply, the round of the request that it replies to, and the run of its server.
type TaggedReply = (u64, MemberAnswer, Option<Run>);

impl Attempt {
    fn new(request: &Request, quorum: &Quorum) -> Result<Self, Failure> {
        let (reply_sender, replies) = channel().map_err(cannot_query)?;
        let (members, now) = (quorum.members.len(), Instant::now());
        let acquisition = Acquisition::new(request, members, quorum.io_timeout, now);
        let token = request.token.clone();
        Ok(Self { token, acquisition, reply_sender, replies, is_noted: false })
    }
}

impl Quorum {
    /// Makes one attempt at the lock, for the first time or again.
    pub(super) fn attempt(
        &mut self,
        request: &Request,
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        let begun = self.attempt.take().filter(|attempt| attempt.token == request.token);
        let mut attempt = match begun {
            Some(attempt) => attempt,
            None => Attempt::new(request, self)?,
        };
        let (outgoing, step) = attempt.acquisition.begin(Instant::now());
        let end = self.carry_out(&mut attempt, request, outgoing, step, interrupt);
        let result = match end {
            Ok(AttemptEnd::Granted(held)) => {
                self.granted = Some(Granted { request: request.clone(), held, at: Instant::now() });
                // The hold survives the loss of another minority only if these have it too.
                self.restore(&request.token, None, &attempt.acquisition.not_asked_to_commit());
                Ok(Answer::Granted { fence: held.0, slot: held.1 })
            }
            Ok(AttemptEnd::Queued { view, position, sleep, too_few }) => {
                let obstacle = too_few.map(|voting| self.too_few_for(&attempt, voting));
                if let Some(failure) = &obstacle
                    && !std::mem::replace(&mut attempt.is_noted, true)
                {
                    let problem = failure.fault.problem().to_owned();
                    self.diagnostics.push(Diagnostic::Warning(problem));
                }
                Ok(Answer::Queued { view, position, sleep, arrival: None, obstacle })
            }
            Ok(AttemptEnd::Refused(answer)) => Ok(*answer),
            Ok(AttemptEnd::TooFew(useful)) => {
                self.forget_warnings();
                Err(self.too_few_for(&attempt, useful))
            }
            // Only a sleep ends like this, and this is an attempt.
            Ok(AttemptEnd::Woken) => Err(Failure::interrupted(Delivery::Pending)),
            // The members have had all the time that there is.
            Err(failure) if failure.kind == Interrupted && interrupt.is_over() => {
                let useful = attempt.acquisition.votes().count(|()| true);
                self.forget_warnings();
                Err(self.too_few_for(&attempt, useful))
            }
            Err(failure) => Err(failure),
        };
        let names = self.members.iter().map(Member::name);
        let wrong = attempt.acquisition.wrong_clocks(names, false);
        for (number, fault) in wrong.into_iter().filter(|_| result.is_ok()) {
            let failure = Failure::new(Misconfigured, fault);
            self.report(number, Err(failure), Vec::new());
        }
        let is_known = attempt.acquisition.may_be_known();
        let result =
            result.map_err(|failure| if is_known { failure.but_maybe_executed() } else { failure });
        use Answer::{Busy, Ended, Removed, Superseded};
        if let Ok(Busy(_) | Ended(_) | Superseded(_) | Removed(_)) = result {
            // The members have queued even a request that does not wait, and one that only some of
            // them have ended.
            let is_skipped = matches!(result, Ok(Busy(_)));
            self.withdraw_blind(&Request { is_skipped, ..request.clone() });
        }
        self.attempt = Some(attempt);
        result
    }

    /// Sleeps until an attempt may succeed, but no longer than `at_most`.
    pub(super) fn rest(
        &mut self,
        request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Failure> {
        let Some(mut attempt) = self.attempt.take() else { return Ok(()) };
        let now = Instant::now();
        let (outgoing, step) = attempt.acquisition.rest(now + at_most, now);
        let end = self.carry_out(&mut attempt, request, outgoing, step, interrupt);
        self.attempt = Some(attempt);
        end.map(|_| ())
    }

    fn carry_out(
        &mut self,
        attempt: &mut Attempt,
        request: &Request,
        mut outgoing: Vec<Outgoing>,
        mut step: AttemptStep,
        interrupt: Interrupt<'_>,
    ) -> Result<AttemptEnd, Failure> {
        loop {
            for sent in outgoing {
                send(&self.members[sent.member], sent, request, &attempt.reply_sender);
            }
            let until = match step {
                AttemptStep::Wait(until) => until,
                AttemptStep::End(end) => return Ok(end),
            };
            let reply = received(&attempt.replies, interrupt, until)?;
            let now = Instant::now();
            (outgoing, step) = match reply {
                Some(MemberReply { number, answer: (round, reply, run), diagnostics }) => {
                    self.observe(number, &reply, diagnostics);
                    attempt.acquisition.replied(number, round, reply, run, now)
                }
                None => attempt.acquisition.progress(now),
            };
        }
    }

    fn observe(&mut self, number: usize, reply: &MemberAnswer, own: Vec<Diagnostic>) {
        let what = match reply {
            MemberAnswer::Proposed(Proposal { nominated: Some(_), position, .. }) => {
                format!("nominated at position {position}")
            }
            MemberAnswer::Proposed(Proposal { position, view, .. }) => {
                format!("waiting at position {position}: {view}")
            }
            MemberAnswer::Answer(Answer::Granted { fence, .. }) => {
                format!("granted, fencing token {fence}")
            }
            MemberAnswer::Answer(Answer::Busy(view) | Answer::Queued { view, .. }) => {
                view.to_string()
            }
            MemberAnswer::Answer(Answer::Nested | Answer::Upgrade) => {
                "held by an enclosing command".into()
            }
            MemberAnswer::Answer(Answer::Ended(why)) => format!("request ended: the lock {why}"),
            MemberAnswer::Answer(Answer::Superseded(newer)) => format!("superseded by {newer}"),
            MemberAnswer::Answer(Answer::Removed(operator)) => {
                format!("removed from the queue{operator}")
            }
            MemberAnswer::AheadOfClock(by, _) => {
                format!("refused a fencing token, {} ahead of its clock", show(*by))
            }
            MemberAnswer::Heard(Some(_)) => "nominated".into(),
            MemberAnswer::Heard(None) => return self.diagnostics.extend(own),
            MemberAnswer::Failed(failure) => {
                return self.report(number, Err(failure.clone()), own);
            }
        };
        self.report(number, Ok(what), own);
    }

    /// If too few servers can vote yet, why.
    fn too_young(&self, attempt: &Attempt) -> Option<UserMessage> {
        let names = self.members.iter().map(Member::name);
        let young = attempt.acquisition.too_young(names, Instant::now());
        let servers = self.members.len();
        if servers - young.len() >= majority(servers) {
            return None;
        }
        let why: Vec<&str> = young.iter().map(|(_, fault)| fault.problem()).collect();
        let what =
            format!("{} of {servers} servers cannot vote yet ({})", young.len(), why.join("; "));
        let remedy = young.iter().find_map(|(_, fault)| fault.remedy()).unwrap_or_default();
        Some(UserMessage::new(what).with_remedy(remedy))
    }

    fn too_few_for(&mut self, attempt: &Attempt, useful: usize) -> Failure {
        let acquisition = &attempt.acquisition;
        if let Some(fault) = self.duplicate() {
            self.has_reported_duplicate = true;
            return Failure::new(Misconfigured, fault);
        }
        if let Some(fault) = self.too_young(attempt) {
            return Failure::new(Unavailable, fault);
        }
        let mut votes = acquisition.votes();
        let names = || self.members.iter().map(Member::name);
        for (number, fault) in acquisition.too_young(names(), Instant::now()) {
            votes.votes[number] = Some(Err(Failure::new(Unavailable, fault)));
        }
        let wrong = acquisition.wrong_clocks(names(), true);
        for (number, fault) in &wrong {
            let failure = Failure::new(Misconfigured, fault.clone());
            votes.votes[*number] = Some(Err(failure));
        }
        let failure = votes.too_few(names(), useful);
        match (failure, wrong.into_iter().next()) {
            (failure, Some((_, fault))) if failure.kind == Misconfigured => {
                Failure { fault, ..failure }
            }
            (failure, _) => failure,
        }
    }
}

fn send(
    member: &Member,
    sent: Outgoing,
    request: &Request,
    replies: &Sender<MemberReply<TaggedReply>>,
) {
    let Outgoing { member: number, round, what } = sent;
    let request = request.clone();
    // Numbered in the order of the decisions, whenever the members carry them out: two members may
    // be the same server.
    let attempt = attempt_number();
    member.ask(number, replies, move |store| {
        let reply = match what {
            MemberRequest::Ask(op) => ask(store, &request, op, attempt),
            MemberRequest::Listen(at_most) => {
                let is_possible = |it: &Nomination| (Fence(1)..TOO_LARGE).contains(&it.fence);
                let heard = store.hear_nomination(&request, at_most);
                heard.map(|nominated| MemberAnswer::Heard(nominated.filter(is_possible)))
            }
        };
        let voted = reply.and_then(|reply| {
            let run = store.voting_run(&request.key).map_err(Failure::but_maybe_executed)?;
            Ok((reply, run))
        });
        let (reply, run) = voted
            .unwrap_or_else(|failure| (MemberAnswer::Failed(failure), store.topology.run.clone()));
        (round, reply, run)
    });
}

fn ask(
    store: &mut MemberStore,
    request: &Request,
    op: QuorumOp,
    attempt: u64,
) -> Result<MemberAnswer, Failure> {
    let mut first = Some(attempt);
    let reply = until_decided(store.patience(), || {
        let attempt = first.take().unwrap_or_else(attempt_number);
        Ok(match store.vote(request, op, attempt)? {
            Continue(proposal) => Some(MemberAnswer::Proposed(proposal)),
            Break(Verdict::Answer(answer)) => Some(MemberAnswer::Answer(answer)),
            Break(Verdict::AheadOfClock { ahead, now }) => {
                Some(MemberAnswer::AheadOfClock(ahead, now))
            }
            Break(Verdict::Again) => None,
        })
    })?;
    let fence = match &reply {
        MemberAnswer::Answer(Answer::Granted { fence, .. }) => Some(*fence),
        MemberAnswer::Proposed(proposal) => proposal.nominated.as_ref().map(|it| it.fence),
        _ => None,
    };
    if let Some(fence) = fence.filter(|fence| *fence >= TOO_LARGE) {
        // Neither a clock nor counting can have reached it, so the data is damaged.
        let server = store.topology.endpoint();
        let what = format!("fencing token {fence} on {server} exceeds 2^53");
        return Err(Failure::misconfigured(what, "when the lock is free, delete its keys there"));
    }
    Ok(reply)
}
