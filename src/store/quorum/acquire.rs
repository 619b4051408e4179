//! One attempt at a lock on a quorum.
//!
//! Each step asks the members, and `decision` interprets their votes. First all members are asked
//! at once. With enough grants, a majority then agrees on a fencing token. Otherwise the request is
//! undone on every member that may have granted it.

use std::time::Duration;

use super::decision::{NotGranted, Tally, Vote, Votes, describe, required};
use super::fence;
use super::jitter::jitter;
use super::members::{Delivery, Member, MemberStore, skip_if_busy};
use super::{BACK_OFF, Granted, Quorum};
use crate::lock::view::View;
use crate::store::{Answer, Failure, Interrupt, Request, Store};
use crate::system::clock::Instant;

/// The longest pauses before further attempts after a split vote, in milliseconds: several clients
/// asked for the lock at once, so that none of them got it.
const SPLIT_PAUSES: &[u64] = &[10, 20, 40, 80, 160, 320];

/// The result of asking once.
struct Attempt {
    answer: Answer,
    /// The lock is free, but several clients each have the votes of some members.
    is_split: bool,
}

impl Quorum {
    /// Asks once. If a split vote is the only reason why the lock is not granted, one of the
    /// clients should get it by asking again after a short random pause, so the first few answers
    /// request that.
    pub(super) fn attempt(
        &mut self,
        request: &Request,
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        let Attempt { answer, is_split } = self.attempt_once(request, interrupt)?;
        let again = SPLIT_PAUSES.get(self.splits).filter(|_| is_split);
        self.splits = if again.is_some() { self.splits + 1 } else { 0 };
        Ok(again.map_or(answer, |millis| Answer::Split {
            pause: Duration::from_millis(*millis).mul_f64(jitter()),
        }))
    }

    fn attempt_once(
        &mut self,
        request: &Request,
        interrupt: Interrupt<'_>,
    ) -> Result<Attempt, Failure> {
        let required = required(request.mode, self.members.len());
        let lease = request.ttl.get().max(request.at_least);
        let votes = match self.vote(request, lease, required, interrupt) {
            Ok(votes) => votes,
            Err(failure) => return Err(self.abandon(request, failure)),
        };
        let tally = Tally::of(&votes, lease, required, Instant::now());
        if let Some(fences) = tally.fences_if_granted() {
            return match self.agree_on_fence(request, fences, interrupt) {
                Ok(fence) => {
                    let request = Request { fence: Some(fence), ..request.clone() };
                    self.granted = Some(Granted { request, at: Instant::now() });
                    self.back_off = BACK_OFF;
                    Ok(Attempt { answer: Answer::Granted { fence }, is_split: false })
                }
                Err(failure) => Err(self.abandon(request, failure)),
            };
        }
        let is_undone = self.undo(request, &votes)?;
        match tally.not_granted(is_undone) {
            NotGranted::Impossible(answer) => Ok(Attempt { answer, is_split: false }),
            NotGranted::TooFew(useful) => {
                if let Some(fault) = self.duplicate() {
                    self.has_reported_duplicate = true;
                    return Err(Failure::misconfigured(fault));
                }
                let young = tally.too_young(self.members.iter().map(Member::name));
                let mut votes = votes;
                for (number, failure) in young {
                    votes.votes[number] = Some(Err(failure));
                }
                Err(self.too_few(useful, required, &votes))
            }
            NotGranted::Busy { view, is_split } if request.heartbeat.is_none() => {
                Ok(Attempt { answer: Answer::Busy(view), is_split })
            }
            NotGranted::Busy { view, is_split } => {
                let sleep = self.back_off.pause().mul_f64(0.5 + jitter() / 2.0);
                Ok(Attempt { answer: Answer::Queued { view, position: None, sleep }, is_split })
            }
        }
    }

    /// Asks every idle member for the lock.
    fn vote(
        &mut self,
        request: &Request,
        lease: Duration,
        required: usize,
        interrupt: Interrupt<'_>,
    ) -> Result<Votes<Vote>, Failure> {
        // Without a heartbeat no member queues the request.
        let request = Request { heartbeat: None, ..request.clone() };
        self.ask(
            skip_if_busy,
            move |store, withdrawal| {
                let answer = fence::acquire(store, &request, withdrawal)?;
                Ok(Vote { answer, run: store.server_run().cloned() })
            },
            |votes| Tally::of(votes, lease, required, Instant::now()).is_decided(),
            |vote: &Vote| describe(&vote.answer),
            interrupt,
        )
    }

    /// Undoes a request on all members that may have granted it. Returns whether each of them has
    /// answered, to the request or now.
    fn undo(&mut self, request: &Request, votes: &Votes<Vote>) -> Result<bool, Failure> {
        let request = request.clone();
        let delivery = |number: usize, _: &Member| match &votes.votes[number] {
            _ if !votes.asked[number] => Delivery::Skip,
            Some(Ok(vote)) if !vote.is_granted() => Delivery::Skip,
            // This member has used up its time.
            None if votes.timed_out => Delivery::Send,
            Some(_) | None => Delivery::Await,
        };
        let left = |_: &View| "request withdrawn".into();
        let leave = move |store: &mut MemberStore, _: Interrupt<'_>| store.leave(&request);
        let undone = self.ask(delivery, leave, |_| false, left, None)?;
        let mut asked = votes.asked.iter().zip(&votes.votes).zip(&undone.votes);
        Ok(asked.all(|((asked, vote), undone)| match (asked, vote, undone) {
            (false, _, _) | (true, Some(Ok(_)) | None, Some(Ok(_))) => true,
            (true, Some(Ok(vote)), None) => !vote.is_granted(),
            _ => false,
        }))
    }

    /// Undoes a request on all members, because `failure` ends it and any of them may have granted
    /// it. On a member that has not answered yet, the undo follows right behind the request.
    fn abandon(&mut self, request: &Request, failure: Failure) -> Failure {
        let request = request.clone();
        let left = |_: &View| "request withdrawn".into();
        let leave = move |store: &mut MemberStore, _: Interrupt<'_>| store.leave(&request);
        match self.ask(|_, _| Delivery::Await, leave, |_| false, left, None) {
            Ok(_) => failure,
            Err(cannot_ask) => cannot_ask,
        }
    }
}
