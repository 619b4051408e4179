//! The members of a quorum, one thread each, and the messages to and from them. `rules::quorum`
//! interprets the messages.

mod member;
mod replies;

use std::time::Duration;

pub(super) use member::{Member, MemberStore};
pub(super) use replies::{MemberReply, Replies, ReplySender, open};

use crate::report::Diagnostic;
use crate::rules::quorum::{Votes, grace_until};
use crate::rules::{Failure, Instant, UserMessage};
use crate::store::Interrupt;

/// Whose replies to collect, and for how long.
pub(super) struct Terms {
    pub(super) timeout: Duration,
    /// Once this many members have answered, the others get only a little more time.
    pub(super) majority: Option<usize>,
    pub(super) if_busy: IfBusy,
}

/// What to do about a member that has not finished an earlier request.
pub(super) enum IfBusy {
    Skip,
    /// Skip these, even if they are idle again.
    SkipThese(Vec<usize>),
    /// Queue the request behind the earlier one.
    Queue,
}

/// Sends a request to the members, all at once. Collects their replies until there are
/// `enough`, or until the timeout has passed. If the interrupt comes first, the members stop
/// working on the request.
pub(super) fn ask<T: Send + 'static>(
    members: &[Member],
    terms: &Terms,
    request: impl Fn(&mut MemberStore, Interrupt<'_>) -> Result<T, Failure> + Clone + Send + 'static,
    enough: impl Fn(&Votes<T>) -> bool,
    mut observe: impl FnMut(usize, &Result<T, Failure>, Vec<Diagnostic>),
    interrupt: Interrupt<'_>,
) -> Result<Votes<T>, Failure> {
    let begun = Instant::now();
    let mut until = begun + terms.timeout;
    let (reply_sender, replies) = replies::open::<T>().map_err(|error| {
        Failure::Unavailable(UserMessage::new(format!("cannot query the servers: {error}")))
    })?;
    let mut votes = Votes::new(members.len());
    let mut awaited = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let skips = match &terms.if_busy {
            IfBusy::Skip => member.is_busy(),
            IfBusy::SkipThese(busy) => busy.contains(&number),
            IfBusy::Queue => false,
        };
        if skips {
            continue;
        }
        votes.asked[number] = true;
        member.ask(number, &reply_sender, request.clone());
        awaited.push(number);
    }
    while !awaited.is_empty() && !enough(&votes) {
        let withdraw = || awaited.iter().for_each(|number| members[*number].withdraw());
        let next = replies.next(until, interrupt).inspect_err(|_| withdraw());
        let Some(MemberReply { number, answer, diagnostics }) = next? else { break };
        awaited.retain(|other| *other != number);
        observe(number, &answer, diagnostics);
        votes.votes[number] = Some(answer);
        if terms.majority.is_some_and(|majority| votes.count(|_| true) == majority) {
            until = until.min(grace_until(begun, Instant::now()));
        }
    }
    Ok(votes)
}
