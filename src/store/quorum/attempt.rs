//! One attempt at a lock: a majority has to grant it, and has to have the same fence for it.

use std::time::Duration;

use super::ask::{Asked, Votes, if_idle};
use super::member::Member;
use super::merge::merge;
use super::{BACK_OFF, Quorum, needed};
use crate::clock::Instant;
use crate::duration::{Ttl, show};
use crate::lock::Fence;
use crate::store::{Answer, Failure, Fate, Interrupt, Request, Store};
use crate::view::View;

/// So often a fence is written to those that have a larger one meanwhile.
const FENCE_ROUNDS: usize = 8;

/// An answer to a request, and since when who gave it has been running.
#[derive(Clone, Debug)]
struct Vote {
    answer: Answer,
    up_since: Option<Instant>,
}

impl Vote {
    fn uptime(&self) -> Duration {
        self.up_since.map_or(Duration::ZERO, |since| Instant::now().since(since))
    }

    /// Is it a grant by a server that has been up for longer than any lease that it may have
    /// forgotten?
    fn counts(&self, longest_lease: Duration) -> bool {
        is_granted(&self.answer) && self.uptime() >= longest_lease
    }
}

impl Quorum {
    /// Asks once. What is not won is taken back from all who may have granted it.
    pub(super) fn attempt(
        &mut self,
        request: &Request,
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        let servers = self.members.len();
        let needed = needed(request.mode, servers);
        // Nobody has a place in line.
        let asked = Request { heartbeat: None, ..request.clone() };
        let ttl = request.ttl;
        let mut votes = self.ask(
            if_idle,
            move |node| {
                let answer = node.acquire(&asked, &[], None)?;
                Ok(Vote { answer, up_since: node.servers.node.up_since() })
            },
            |votes| {
                let longest = longest_lease(ttl, votes);
                votes.count(|vote| vote.counts(longest)) >= needed
                    || votes.count(|vote| !is_granted(&vote.answer)) > servers - needed
            },
            |vote: &Vote| describe(&vote.answer),
            interrupt,
        )?;
        let longest = longest_lease(ttl, &votes);
        let fences = votes.values().filter_map(|(number, vote)| match vote.answer {
            Answer::Granted { fence } => vote.counts(longest).then_some((number, fence)),
            _ => None,
        });
        let fences: Vec<(usize, Fence)> = fences.collect();
        if fences.len() >= needed {
            match self.settle_fence(request, fences, interrupt) {
                Ok(fence) => {
                    self.granted = Some(Request { fence: Some(fence), ..request.clone() });
                    self.back_off = BACK_OFF;
                    return Ok(Answer::Granted { fence });
                }
                Err(failure) => {
                    self.take_back(request, &votes)?;
                    return Err(failure);
                }
            }
        }
        self.take_back(request, &votes)?;

        let find =
            |is: fn(&Answer) -> bool| votes.values().map(|(_, vote)| vote.answer.clone()).find(is);
        if let Some(own) = find(|answer| matches!(answer, Answer::Inside | Answer::Upgrade)) {
            return Ok(own);
        }
        let views: Vec<View> = votes
            .values()
            .filter_map(|(_, vote)| match &vote.answer {
                Answer::Busy(view) => Some(view.clone()),
                _ => None,
            })
            .collect();
        let refused = votes.count(|vote| !is_granted(&vote.answer)) > servers - needed;
        if !refused && fences.len() + views.len() < needed {
            for (member, vote) in self.members.iter().zip(&mut votes.0) {
                let Some(Ok(young)) = vote else { continue };
                if is_granted(&young.answer) && !young.counts(longest) {
                    *vote = Some(Err(Failure::Unavailable(format!(
                        "{} was started {} ago and may have forgotten a lease of {}",
                        member.name(),
                        show(young.uptime()),
                        show(longest)
                    ))));
                }
            }
            return Err(self.too_few(fences.len() + views.len(), needed, &votes));
        }
        let view = merge(&views, servers, true);
        if request.heartbeat.is_none() {
            return Ok(Answer::Busy(view));
        }
        let pause = self.back_off.pause();
        Ok(Answer::Queued { view, position: None, sleep: pause.mul_f64(0.5 + chance() / 2.0) })
    }

    /// Takes a request back from all that may have it: those who did not refuse it.
    fn take_back(&mut self, request: &Request, votes: &Votes<Vote>) -> Result<(), Failure> {
        let request = request.clone();
        let whom = |number: usize, _: &Member| match &votes.0[number] {
            Some(Ok(vote)) if !is_granted(&vote.answer) => Asked::Not,
            Some(_) => Asked::Awaited,
            None => Asked::Only,
        };
        let left = |_: &View| "taken back".into();
        self.ask(whom, move |node| node.leave(&request), |_| false, left, None).map(drop)
    }

    /// Gives the hold the same fence on a majority: the largest that one of them has given it. The
    /// next grant needs a majority too, so it meets one of those, and gets a larger one. A server
    /// that has given away a larger one meanwhile answers with one that is larger still.
    fn settle_fence(
        &mut self,
        request: &Request,
        mut fences: Vec<(usize, Fence)>,
        interrupt: Interrupt<'_>,
    ) -> Result<Fence, Failure> {
        let majority = self.majority();
        for _ in 0..FENCE_ROUNDS {
            let Some(fence) = fences.iter().map(|(_, fence)| *fence).max() else { break };
            let behind: Vec<usize> = fences
                .iter()
                .filter(|(_, theirs)| *theirs != fence)
                .map(|(number, _)| *number)
                .collect();
            let have = fences.len() - behind.len();
            if have >= majority {
                return Ok(fence);
            }
            let request = Request { fence: Some(fence), ..request.clone() };
            let has = move |answer: &Answer| *answer == Answer::Granted { fence };
            let votes = self.ask(
                |number, _| if behind.contains(&number) { Asked::Awaited } else { Asked::Not },
                move |node| node.acquire(&request, &[], None),
                |votes| have + votes.count(has) >= majority,
                |answer| format!("fence: {}", describe(answer)),
                interrupt,
            )?;
            for (number, theirs) in &mut fences {
                if let Some(Some(Ok(Answer::Granted { fence }))) = votes.0.get(*number) {
                    *theirs = *fence;
                }
            }
        }
        Err(Failure::Unreachable {
            what: format!("a fence could not be agreed on by {majority} servers"),
            fate: Fate::NotSent,
        })
    }
}

/// Between 0 and 1.
fn chance() -> f64 {
    let [one, other, ..] = *uuid::Uuid::new_v4().as_bytes();
    f64::from(u16::from_ne_bytes([one, other])) / f64::from(u16::MAX)
}

fn is_granted(answer: &Answer) -> bool {
    matches!(answer, Answer::Granted { .. })
}

fn describe(answer: &Answer) -> String {
    match answer {
        Answer::Granted { fence } => format!("granted, fence {fence}"),
        Answer::Busy(view) | Answer::Queued { view, .. } => view.to_string(),
        Answer::Inside => "held by a command around this one".into(),
        Answer::Upgrade => "held in shared mode by a command around this one".into(),
    }
}

/// The longest lease that may have been given away on a server and forgotten since, as far as can
/// be known: our own, and those of the holders that the others know of.
fn longest_lease(ttl: Ttl, votes: &Votes<Vote>) -> Duration {
    let views = votes.values().filter_map(|(_, vote)| match &vote.answer {
        Answer::Busy(view) => Some(view),
        _ => None,
    });
    let holders = views.flat_map(|view| &view.holders);
    holders
        .map(|holder| holder.deadline.since(holder.renewed))
        .max()
        .unwrap_or_default()
        .max(ttl.get())
}
