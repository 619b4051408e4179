//! The members of a quorum, one thread each, and the messages to and from them. `decision`
//! interprets the messages.

mod member;
mod replies;

use std::time::Duration;

pub(super) use member::{Member, MemberStore};
use replies::MemberReply;
pub(super) use replies::open;

use super::decision::Votes;
use crate::report::{Diagnostic, Fault};
use crate::store::{Failure, Interrupt};
use crate::system::clock::Instant;

/// How to send a request to a member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Do not send it.
    Skip,
    /// The member carries it out after earlier requests, and its reply is not awaited.
    Send,
    /// The member carries it out after earlier requests, and its reply is awaited.
    Await,
}

/// For requests that a slow member may skip.
pub(super) fn skip_if_busy(_number: usize, member: &Member) -> Delivery {
    if member.is_busy() { Delivery::Skip } else { Delivery::Await }
}

/// For requests that every member must carry out, even if late.
pub(super) fn send_if_busy(_number: usize, member: &Member) -> Delivery {
    if member.is_busy() { Delivery::Send } else { Delivery::Await }
}

/// Sends a request to members at once. Collects the replies that are awaited until there are
/// `enough`, or until `timeout` has passed. If the interrupt comes first, members that can stop
/// working on the request do so.
pub(super) fn ask<T: Send + 'static>(
    members: &[Member],
    timeout: Duration,
    delivery: impl Fn(usize, &Member) -> Delivery,
    request: impl Fn(&mut MemberStore, Interrupt<'_>) -> Result<T, Failure> + Clone + Send + 'static,
    enough: impl Fn(&Votes<T>) -> bool,
    mut observe: impl FnMut(usize, &Result<T, Failure>, Vec<Diagnostic>),
    interrupt: Interrupt<'_>,
) -> Result<Votes<T>, Failure> {
    let until = Instant::now() + timeout;
    let (reply_sender, replies) = replies::open::<T>().map_err(|error| {
        Failure::Unavailable(Fault::new(format!("cannot query the servers: {error}")))
    })?;
    let mut votes = Votes::new(members.len());
    let mut awaited = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let delivery = delivery(number, member);
        if delivery != Delivery::Skip {
            votes.asked[number] = true;
            member.ask(number, &reply_sender, request.clone());
        }
        if delivery == Delivery::Await {
            awaited.push(number);
        }
    }
    while !awaited.is_empty() && !enough(&votes) {
        let next = replies.next(until, interrupt).inspect_err(|_| replies.withdraw());
        let Some(MemberReply { number, answer, diagnostics }) = next? else {
            votes.timed_out = true;
            break;
        };
        awaited.retain(|other| *other != number);
        observe(number, &answer, diagnostics);
        votes.votes[number] = Some(answer);
    }
    Ok(votes)
}
