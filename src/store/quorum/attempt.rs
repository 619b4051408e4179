//! One attempt at a lock: a majority has to grant it, and has to have the same fence for it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ask::{Asked, Votes, if_idle};
use super::member::{Member, Node};
use super::merge::{free_like, merge};
use super::{BACK_OFF, Granted, Quorum, needed};
use crate::clock::Instant;
use crate::duration::show;
use crate::lock::Fence;
use crate::store::node::Run;
use crate::store::{Answer, Failure, Fate, Interrupt, Request, Store};
use crate::view::{State, View};

/// If nobody has a lock that several have asked for at once, they ask again after this long at most,
/// in milliseconds, one after the other.
const SPLIT_AGAIN: &[u64] = &[10, 20, 40, 80, 160, 320];

/// What came of asking once.
struct Attempt {
    answer: Answer,
    /// Nobody has it: some were given some of the servers, and others the others.
    split: bool,
}

/// An answer to a request, and since when who gave it has been running.
#[derive(Clone, Debug)]
struct Vote {
    answer: Answer,
    run: Option<Run>,
}

impl Vote {
    fn uptime(&self) -> Duration {
        self.run.as_ref().map_or(Duration::ZERO, |run| Instant::now().since(run.since))
    }

    /// Is it a grant by a server that has been up for longer than any lease that it may have
    /// forgotten?
    fn counts(&self, longest_lease: Duration) -> bool {
        is_granted(&self.answer) && self.uptime() >= longest_lease
    }
}

impl Quorum {
    /// Asks; and again, a few times, if nobody has it only because several have asked at once: one
    /// of them should get it. What is not won is taken back from all who may have granted it.
    pub(super) fn attempts(
        &mut self,
        request: &Request,
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        let mut split_again = SPLIT_AGAIN;
        loop {
            let Attempt { answer, split } = self.attempt(request, interrupt)?;
            if !split || split_again.is_empty() {
                return Ok(answer);
            }
            let pause = Duration::from_millis(split_again[0]).mul_f64(chance());
            split_again = &split_again[1..];
            self.sleep(request, pause, interrupt)?;
        }
    }

    fn attempt(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<Attempt, Failure> {
        let servers = self.members.len();
        let needed = needed(request.mode, servers);
        // Nobody has a place in line.
        let asked = Request { heartbeat: None, ..request.clone() };
        let lease = request.ttl.get().max(request.at_least);
        let mut votes = self.ask(
            if_idle,
            move |node| {
                let answer = node.acquire(&asked, &[], None)?;
                Ok(Vote { answer, run: node.servers.node.this_run().cloned() })
            },
            |votes| {
                let longest = longest_lease(lease, votes);
                votes.count(|vote| vote.counts(longest)) >= needed
                    || votes.count(|vote| !is_granted(&vote.answer)) > servers - needed
            },
            |vote: &Vote| describe(&vote.answer),
            interrupt,
        )?;
        let longest = longest_lease(lease, &votes);
        let fences = votes.values().filter_map(|(number, vote)| match vote.answer {
            Answer::Granted { fence } => vote.counts(longest).then_some((number, fence)),
            _ => None,
        });
        let fences: Vec<(usize, Fence)> = fences.collect();
        if fences.len() >= needed && self.require_different_servers(&votes).is_ok() {
            match self.settle_fence(request, fences, interrupt) {
                Ok(fence) => {
                    let request = Request { fence: Some(fence), ..request.clone() };
                    self.granted = Some(Granted { request, at: Instant::now() });
                    self.back_off = BACK_OFF;
                    return Ok(Attempt { answer: Answer::Granted { fence }, split: false });
                }
                Err(failure) => {
                    self.take_back(request, &votes)?;
                    return Err(failure);
                }
            }
        }
        let clean = self.take_back(request, &votes)?;
        self.require_different_servers(&votes)?;

        let find =
            |is: fn(&Answer) -> bool| votes.values().map(|(_, vote)| vote.answer.clone()).find(is);
        if let Some(own) = find(|answer| matches!(answer, Answer::Inside | Answer::Upgrade)) {
            return Ok(Attempt { answer: own, split: false });
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
            for (member, vote) in self.members.iter().zip(&mut votes.votes) {
                let Some(Ok(young)) = vote else { continue };
                if is_granted(&young.answer) && !young.counts(longest) {
                    *vote = Some(Err(Failure::Unavailable(format!(
                        "{} was started {} ago and may have forgotten a lease of {}; it counts in {}",
                        member.name(),
                        show(young.uptime()),
                        show(longest),
                        show(longest.saturating_sub(young.uptime()))
                    ))));
                }
            }
            return Err(self.too_few(fences.len() + views.len(), needed, &votes));
        }
        // Nobody can have it, and nothing of this attempt is under way any more, so that its token
        // may be used again.
        let granted = votes.count(|vote| is_granted(&vote.answer));
        let free = views.first().map(free_like).into_iter().cycle().take(granted);
        let told: Vec<View> = views.iter().cloned().chain(free).collect();
        let split = clean && merge(&told, servers, false).state == State::Free;
        let view = merge(&views, servers, true);
        if request.heartbeat.is_none() {
            return Ok(Attempt { answer: Answer::Busy(view), split });
        }
        let sleep = self.back_off.pause().mul_f64(0.5 + chance() / 2.0);
        Ok(Attempt { answer: Answer::Queued { view, position: None, sleep }, split })
    }

    /// Two URLs may lead to one server, which would then vote twice.
    fn require_different_servers(&self, votes: &Votes<Vote>) -> Result<(), Failure> {
        let mut seen = Vec::<(&str, &str)>::new();
        for (number, vote) in votes.values() {
            let (Some(run), name) = (&vote.run, self.members[number].name()) else { continue };
            if let Some((_, other)) = seen.iter().find(|(id, _)| *id == run.id) {
                return Err(Failure::Misconfigured {
                    what: format!("{other} and {name} are the same server; name it once"),
                    executed: false,
                });
            }
            seen.push((&run.id, name));
        }
        Ok(())
    }

    /// Takes a request back from all that may have it: those who did not refuse it. Says if all of
    /// them have answered, before and now.
    fn take_back(&mut self, request: &Request, votes: &Votes<Vote>) -> Result<bool, Failure> {
        let request = request.clone();
        let whom = |number: usize, _: &Member| match &votes.votes[number] {
            _ if !votes.asked[number] => Asked::Not,
            Some(Ok(vote)) if !is_granted(&vote.answer) => Asked::Not,
            // It has had its time.
            None if votes.late => Asked::Only,
            Some(_) | None => Asked::Awaited,
        };
        let left = |_: &View| "taken back".into();
        let leave = move |node: &mut Node| node.leave(&request);
        let taken = self.ask(whom, leave, |_| false, left, None)?;
        let mut asked = votes.asked.iter().zip(&votes.votes).zip(&taken.votes);
        Ok(asked.all(|((asked, vote), taken)| match (asked, vote, taken) {
            (false, _, _) | (true, Some(Ok(_)) | None, Some(Ok(_))) => true,
            (true, Some(Ok(vote)), None) => !is_granted(&vote.answer),
            _ => false,
        }))
    }

    /// Gives the hold the same fence on a majority: the largest that one of them has given it. The
    /// next grant needs a majority too, so it meets one of those, and gets a larger one. A server
    /// that has given away a larger one meanwhile answers with one that is larger still; then
    /// several holds may be outbidding each other, and each leaps ahead by a random number.
    fn settle_fence(
        &mut self,
        request: &Request,
        fences: Vec<(usize, Fence)>,
        interrupt: Interrupt<'_>,
    ) -> Result<Fence, Failure> {
        let (majority, until) = (self.majority(), Instant::now() + self.io_timeout);
        let mut fences: BTreeMap<usize, Fence> = fences.into_iter().collect();
        let mut leap = 0.0;
        while let Some(largest) = fences.values().max().copied() {
            let having = |fences: &BTreeMap<usize, Fence>, fence| {
                fences.values().filter(|theirs| **theirs == fence).count()
            };
            let have = having(&fences, largest);
            if have >= majority {
                return Ok(largest);
            }
            if Instant::now() >= until {
                break;
            }
            // The largest at first, which some have already.
            let fence = Fence(largest.0 + (leap * chance()) as u64);
            leap = (leap * 2.0).max(1_000.0);
            let have = having(&fences, fence);
            let request = Request { fence: Some(fence), heartbeat: None, ..request.clone() };
            let has = move |answer: &Answer| *answer == Answer::Granted { fence };
            // Those too whose first answer came too late to count.
            let votes = self.ask(
                |number, member| match fences.get(&number) {
                    Some(theirs) if *theirs == fence => Asked::Not,
                    _ => if_idle(number, member),
                },
                move |node| node.acquire(&request, &[], None),
                |votes| have + votes.count(has) >= majority,
                |answer| format!("fence: {}", describe(answer)),
                interrupt,
            )?;
            for (number, vote) in votes.votes.iter().enumerate().filter(|(n, _)| votes.asked[*n]) {
                match vote {
                    Some(Ok(Answer::Granted { fence })) => fences.insert(number, *fence),
                    _ => fences.remove(&number),
                };
            }
        }
        Err(Failure::Unreachable {
            what: format!("a fence could not be agreed on by {majority} servers in time"),
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
fn longest_lease(own: Duration, votes: &Votes<Vote>) -> Duration {
    let views = votes.values().filter_map(|(_, vote)| match &vote.answer {
        Answer::Busy(view) => Some(view),
        _ => None,
    });
    let holders = views.flat_map(|view| &view.holders);
    holders.map(|holder| holder.deadline.since(holder.renewed)).max().unwrap_or_default().max(own)
}
