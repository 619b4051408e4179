//! One attempt at a lock: a majority has to grant it, and has to have the same fence for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ask::{Asked, Votes, if_idle};
use super::member::{Member, Server};
use super::merge::{free_like, merge};
use super::{BACK_OFF, Granted, Quorum, needed};
use crate::back_off::BackOff;
use crate::duration::show;
use crate::lock::Fence;
use crate::lock::view::{State, View};
use crate::store::pause::pause;
use crate::store::server::Run;
use crate::store::{Answer, Failure, Interrupt, Request, Store};
use crate::system::clock::Instant;

/// If nobody has a lock that several have asked for at once, they ask again after this long at most,
/// in milliseconds, one after the other.
const SPLIT_AGAIN: &[u64] = &[10, 20, 40, 80, 160, 320];

/// Between two rounds of agreeing on a fence in which too few have answered.
const BETWEEN_ROUNDS: BackOff = BackOff::new(Duration::from_millis(10), Duration::from_millis(200));

/// How far a fence may leap past those of others at first, and at last.
const FIRST_LEAP: f64 = 256.0;
const LARGEST_LEAP: f64 = 4096.0;

/// From here on fences are not numbers to every reader of JSON, and no clock is there yet.
const NO_FENCE: Fence = Fence(1 << 53);

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
    /// Asks once. What is not won is taken back from all who may have granted it. If nobody has it
    /// only because several have asked at once, one of them should get it by asking again, a few
    /// times.
    pub(super) fn attempt(
        &mut self,
        request: &Request,
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        let Attempt { answer, split } = self.ask_all(request, interrupt)?;
        let again = SPLIT_AGAIN.get(self.splits).filter(|_| split);
        self.splits = if again.is_some() { self.splits + 1 } else { 0 };
        Ok(again.map_or(answer, |millis| Answer::Split {
            pause: Duration::from_millis(*millis).mul_f64(chance()),
        }))
    }

    fn ask_all(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<Attempt, Failure> {
        let servers = self.members.len();
        let needed = needed(request.mode, servers);
        // Nobody has a place in line.
        let asked = Request { heartbeat: None, ..request.clone() };
        let lease = request.ttl.get().max(request.at_least);
        let votes = self.ask(
            if_idle,
            move |node, withdrawal| {
                let answer = acquire(node, &asked, withdrawal)?;
                Ok(Vote { answer, run: node.server_run().cloned() })
            },
            |votes| {
                let longest = longest_lease(lease, votes);
                distinct(votes, |vote| vote.counts(longest)) >= needed
                    || distinct(votes, |vote| !is_granted(&vote.answer)) > servers - needed
            },
            |vote: &Vote| describe(&vote.answer),
            interrupt,
        );
        let mut votes = match votes {
            Ok(votes) => votes,
            Err(failure) => return Err(self.abandon(request, failure)),
        };
        let longest = longest_lease(lease, &votes);
        let fences = votes.values().filter_map(|(number, vote)| match vote.answer {
            Answer::Granted { fence } => vote.counts(longest).then_some((number, fence)),
            _ => None,
        });
        let fences: Vec<(usize, Fence)> = fences.collect();
        let granting = distinct(&votes, |vote| vote.counts(longest));
        if granting >= needed {
            return match self.settle_fence(request, fences, interrupt) {
                Ok(fence) => {
                    let request = Request { fence: Some(fence), ..request.clone() };
                    self.granted = Some(Granted { request, at: Instant::now() });
                    self.back_off = BACK_OFF;
                    Ok(Attempt { answer: Answer::Granted { fence }, split: false })
                }
                Err(failure) => Err(self.abandon(request, failure)),
            };
        }
        let clean = self.take_back(request, &votes)?;

        let find =
            |is: fn(&Answer) -> bool| votes.values().map(|(_, vote)| vote.answer.clone()).find(is);
        if let Some(own) = find(|answer| matches!(answer, Answer::Nested | Answer::Upgrade)) {
            return Ok(Attempt { answer: own, split: false });
        }
        let views: Vec<View> = votes
            .values()
            .filter_map(|(_, vote)| match &vote.answer {
                Answer::Busy(view) => Some(view.clone()),
                _ => None,
            })
            .collect();
        let refusing = distinct(&votes, |vote| !is_granted(&vote.answer));
        // One who is named has it, whatever became of the others who know.
        let named = views.iter().any(|view| view.state != State::Free);
        if !named && refusing <= servers - needed && granting + refusing < needed {
            self.require_different_servers(&votes)?;
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
            return Err(self.too_few(granting + refusing, needed, &votes));
        }
        // Nobody can have it, and nothing of this attempt is under way any more, so that its token
        // may be used again.
        let granted = votes.count(|vote| is_granted(&vote.answer));
        let free = views.first().map(free_like).into_iter().cycle().take(granted);
        let told: Vec<View> = views.iter().cloned().chain(free).collect();
        let young = votes.count(|vote| is_granted(&vote.answer) && !vote.counts(longest)) > 0;
        let split = clean && !young && merge(&told, servers, false).state == State::Free;
        let view = merge(&views, servers, true);
        if request.heartbeat.is_none() {
            return Ok(Attempt { answer: Answer::Busy(view), split });
        }
        let sleep = self.back_off.pause().mul_f64(0.5 + chance() / 2.0);
        Ok(Attempt { answer: Answer::Queued { view, position: None, sleep }, split })
    }

    /// Two URLs may lead to one server, which then has one vote: so there may be too few.
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
        let leave = move |node: &mut Server, _: Interrupt<'_>| node.leave(&request);
        let taken = self.ask(whom, leave, |_| false, left, None)?;
        let mut asked = votes.asked.iter().zip(&votes.votes).zip(&taken.votes);
        Ok(asked.all(|((asked, vote), taken)| match (asked, vote, taken) {
            (false, _, _) | (true, Some(Ok(_)) | None, Some(Ok(_))) => true,
            (true, Some(Ok(vote)), None) => !is_granted(&vote.answer),
            _ => false,
        }))
    }

    /// Takes a request back from everybody before `failure` ends it, by which nobody may know who
    /// has it. Where it has not been answered, this goes right behind it.
    fn abandon(&mut self, request: &Request, failure: Failure) -> Failure {
        let request = request.clone();
        let left = |_: &View| "taken back".into();
        let leave = move |node: &mut Server, _: Interrupt<'_>| node.leave(&request);
        match self.ask(|_, _| Asked::Awaited, leave, |_| false, left, None) {
            Ok(_) => failure,
            Err(cannot_ask) => cannot_ask,
        }
    }

    /// Gives the hold the same fence on a majority: the largest that one of them has given it. The
    /// next grant needs a majority too, so it meets one of those, and gets a larger one. A server
    /// that has given away a larger one meanwhile answers with one that is larger still; then
    /// several holds may be outbidding each other, and each leaps ahead by a random number. Past a
    /// server that does not answer there is nothing to leap.
    fn settle_fence(
        &mut self,
        request: &Request,
        fences: Vec<(usize, Fence)>,
        interrupt: Interrupt<'_>,
    ) -> Result<Fence, Failure> {
        let (majority, until) = (self.majority(), Instant::now() + self.io_timeout);
        let mut fences: BTreeMap<usize, Fence> = fences.into_iter().collect();
        let (mut leap, mut back_off) = (FIRST_LEAP, BETWEEN_ROUNDS);
        let mut fence = fences.values().max().copied().unwrap_or(Fence(0));
        loop {
            let have = fences.values().filter(|theirs| **theirs == fence).count();
            if have >= majority {
                return Ok(fence);
            }
            if Instant::now() >= until {
                break;
            }
            let request = Request { fence: Some(fence), heartbeat: None, ..request.clone() };
            let has = move |answer: &Answer| *answer == Answer::Granted { fence };
            // Those too whose first answer came too late to count.
            let votes = self.ask(
                |number, member| match fences.get(&number) {
                    Some(theirs) if *theirs == fence => Asked::Not,
                    _ => if_idle(number, member),
                },
                move |node, withdrawal| acquire(node, &request, withdrawal),
                |votes| have + votes.count(has) >= majority,
                |answer| format!("fencing token: {}", describe(answer)),
                interrupt,
            )?;
            for (number, vote) in votes.votes.iter().enumerate().filter(|(n, _)| votes.asked[*n]) {
                match vote {
                    Some(Ok(Answer::Granted { fence })) => fences.insert(number, *fence),
                    _ => fences.remove(&number),
                };
            }
            match fences.values().max() {
                Some(larger) if *larger > fence => {
                    fence = Fence(larger.0 + (leap * chance()) as u64);
                    leap = (leap * 2.0).min(LARGEST_LEAP);
                }
                _ if fences.values().filter(|theirs| **theirs == fence).count() >= majority => {}
                _ => pause(back_off.pause().mul_f64(chance()), interrupt)?,
            }
        }
        let what =
            format!("{majority} servers did not agree on a fencing token in time; try again");
        Err(Failure::Unavailable(what))
    }
}

/// Asks one server. A fence that no clock and no count can have brought it to is not believed.
fn acquire(
    node: &mut Server,
    request: &Request,
    withdrawal: Interrupt<'_>,
) -> Result<Answer, Failure> {
    match node.acquire(request, &[], withdrawal)? {
        Answer::Granted { fence } if fence >= NO_FENCE => {
            node.leave(request)?;
            let server = node.endpoint();
            Err(Failure::Misconfigured {
                what: format!(
                    "{server}: fencing token {fence} exceeds 2^53; when the lock is free, delete its \
                     keys there"
                ),
                executed: false,
            })
        }
        answer => Ok(answer),
    }
}

/// How many servers vote so; one that several URLs lead to is one.
fn distinct(votes: &Votes<Vote>, is: impl Fn(&Vote) -> bool) -> usize {
    let voting = votes.values().filter(|(_, vote)| is(vote));
    let runs: BTreeSet<_> = voting.map(|(_, vote)| vote.run.as_ref().map(|run| &run.id)).collect();
    runs.len()
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
        Answer::Granted { fence } => format!("granted, fencing token {fence}"),
        Answer::Busy(view) | Answer::Queued { view, .. } => view.to_string(),
        Answer::Nested => "held by a command around this one".into(),
        Answer::Upgrade => "held in shared mode by a command around this one".into(),
        Answer::Over(why) => format!("over: it {why}"),
        Answer::Split { .. } => "free".into(),
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
