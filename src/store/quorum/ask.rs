//! A question to several members at once.

use std::time::Duration;

use super::member::{Member, Server};
use super::replies::{self, MemberReply};
use crate::report::Diagnostic;
use crate::store::{Failure, Fate, Interrupt};
use crate::system::clock::Instant;

/// What a question is to a member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// Not meant for it.
    Not,
    /// It is to do it as soon as it can, but is not waited for.
    Only,
    Awaited,
}

/// For questions: a member that has not done yet what it was asked before is left out.
pub(super) fn if_idle(_number: usize, member: &Member) -> Asked {
    if member.is_busy() { Asked::Not } else { Asked::Awaited }
}

/// For what has to be done: a member that has not done yet what it was asked before does it later.
pub(super) fn surely(_number: usize, member: &Member) -> Asked {
    if member.is_busy() { Asked::Only } else { Asked::Awaited }
}

/// What each member has answered, or not.
pub(super) struct Votes<T> {
    pub(super) votes: Vec<Option<Result<T, Failure>>>,
    /// Whether it was asked at all.
    pub(super) asked: Vec<bool>,
    /// Whether the time was over before there were enough.
    pub(super) late: bool,
}

impl<T> Votes<T> {
    pub(super) fn values(&self) -> impl Iterator<Item = (usize, &T)> {
        self.votes.iter().enumerate().filter_map(|(number, vote)| match vote {
            Some(Ok(value)) => Some((number, value)),
            _ => None,
        })
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.votes.into_iter().flatten().flatten()
    }

    /// What became of it on those that have not answered, taken together.
    pub(super) fn fate(&self) -> Fate {
        let maybe = self.votes.iter().zip(&self.asked).any(|(vote, asked)| match vote {
            Some(Err(failure)) => failure.maybe_executed(),
            Some(Ok(_)) => false,
            None => *asked,
        });
        if maybe { Fate::Pending } else { Fate::NotSent }
    }

    pub(super) fn count(&self, is: impl Fn(&T) -> bool) -> usize {
        self.values().filter(|(_, value)| is(value)).count()
    }
}

/// Asks members at once, and collects the answers of those that are waited for until there are
/// `enough`, or until the time for an answer is over. If the interrupt comes first, members that
/// can be interrupted do not go on with it.
pub(super) fn ask<T: Send + 'static>(
    members: &[Member],
    patience: Duration,
    whom: impl Fn(usize, &Member) -> Asked,
    question: impl Fn(&mut Server, Interrupt<'_>) -> Result<T, Failure> + Clone + Send + 'static,
    enough: impl Fn(&Votes<T>) -> bool,
    mut diagnostic: impl FnMut(usize, &Result<T, Failure>, Vec<Diagnostic>),
    interrupt: Interrupt<'_>,
) -> Result<Votes<T>, Failure> {
    let until = Instant::now() + patience;
    let (reply_sender, votes_cast) = replies::open::<T>()
        .map_err(|error| Failure::Unavailable(format!("cannot ask: {error}")))?;
    let mut votes = Votes {
        votes: members.iter().map(|_| None).collect(),
        asked: vec![false; members.len()],
        late: false,
    };
    let mut awaited = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let asked = whom(number, member);
        if asked != Asked::Not {
            votes.asked[number] = true;
            member.ask(number, &reply_sender, question.clone());
        }
        if asked == Asked::Awaited {
            awaited.push(number);
        }
    }
    while !awaited.is_empty() && !enough(&votes) {
        let next = votes_cast.next(until, interrupt).inspect_err(|_| votes_cast.withdraw());
        let Some(MemberReply { number, answer, diagnostics }) = next? else {
            votes.late = true;
            break;
        };
        awaited.retain(|other| *other != number);
        diagnostic(number, &answer, diagnostics);
        votes.votes[number] = Some(answer);
    }
    Ok(votes)
}
