//! Locks on a majority of several independent servers. A minority may be down, frozen or cut off.
//!
//! This is Redlock:
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>. It differs where a
//! shell script needs more than that page describes:
//!
//! - All servers are asked at once, under one timeout, so that a frozen one costs nothing.
//! - Each server runs the same scripts as one server does, so modes, slots, histories and reasons
//!   exist here too.
//! - A majority agrees on one fencing token. The next grant needs a majority too, so it meets at
//!   least one server that has this token, which then gives a larger one.
//! - A restarted or promoted server does not vote until every lease that it may have forgotten has
//!   expired, so its restart need not be delayed: see `rules::quorum::member_state`.
//! - The next renewal restores holds that a minority of servers has lost.
//! - Waiters are served in one order, although no server decides it: see
//!   `rules::quorum::Acquisition`.
//!
//! The holder's validity time, which is the TTL less the elapsed time and the clock drift, is the
//! same as for one server: see `Lease`.
//!
//! `rules::quorum` interprets the votes and is pure. `member` contains the threads. `acquire` uses
//! both to acquire a lock, and `requests` uses both for everything else. `posting` sends requests
//! without waiting for replies.

mod acquire;
mod distinct;
mod member;
mod member_store;
mod posting;
pub mod reply;
mod requests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use acquire::Attempt;
use distinct::require_distinct;
use member::{Idle, Member, MemberReply};
use member_store::MemberStore;
pub(super) use member_store::PROMOTED;

use super::blocking::received;
use super::denial;
use super::wire::{Limit, Peer};
use super::{Interrupt, NEVER};
use crate::report::Diagnostic;
use crate::rules::FailureKind::{Misconfigured, NotHere};
use crate::rules::quorum::{Held, Votes, grace_until};
use crate::rules::{Failure, Instant, Request, SystemCall, Token, UserMessage};
use crate::system::channel::channel;
use crate::system::wakeup::Wakeup;

/// The locks on several independent servers.
pub(super) struct Quorum {
    members: Vec<Member>,
    io_timeout: Duration,
    attempt: Option<Attempt>,
    granted: Option<Granted>,
    /// A hold that some members may have released, though too few confirmed it.
    maybe_released: Option<Token>,
    diagnostics: Vec<Diagnostic>,
    /// The numbers of the members that rlock has warned about: once each.
    warned: Vec<usize>,
    /// Whether rlock has reported that two members are the same server.
    has_reported_duplicate: bool,
    /// Whether any request could change a lock, so that slow members must still receive it.
    has_written: bool,
    idle: Arc<Idle>,
}

/// The last grant, to restore it on a server that has lost it.
struct Granted {
    request: Request,
    held: Held,
    at: Instant,
}

impl Quorum {
    /// `io_timeout` bounds the replies to each request. A grant or a renewal counts on a server
    /// once `min_replicas` of its replicas have confirmed it.
    ///
    /// # Errors
    ///
    /// Two URLs lead to the same server, or no thread can be started.
    pub(super) fn new(
        servers: &[Peer],
        io_timeout: Duration,
        min_replicas: u32,
    ) -> Result<Self, Failure> {
        require_distinct(servers, io_timeout / 4)?;
        let wakeup = Wakeup::new().map_err(cannot_query)?;
        let idle = Arc::new(Idle { wakeup, is_awaited: AtomicBool::new(false) });
        let start = |server| Member::start(server, io_timeout, min_replicas, &idle);
        Ok(Self {
            members: servers.iter().map(start).collect::<Result<_, _>>()?,
            io_timeout,
            attempt: None,
            granted: None,
            maybe_released: None,
            diagnostics: Vec::new(),
            warned: Vec::new(),
            has_reported_duplicate: false,
            has_written: false,
            idle,
        })
    }

    /// Sends a request to the members but those to be skipped, all at once. Collects their replies
    /// until there are `enough`, or until the I/O timeout has passed, and adds a diagnostic for
    /// each. Without `enough`, the others get only a little more time once a majority has answered.
    /// If the interrupt comes first, the members stop working on the request.
    fn ask<T: Send + 'static>(
        &mut self,
        skipped: &[usize],
        request: impl Fn(&mut MemberStore) -> Result<T, Failure> + Clone + Send + 'static,
        enough: Option<fn(&Votes<T>) -> bool>,
        describe: impl Fn(&T) -> String,
        interrupt: Interrupt<'_>,
    ) -> Result<Votes<T>, Failure> {
        let begun = Instant::now();
        let Limit { mut until, interrupt, .. } = Limit::of_attempt(self.io_timeout, interrupt);
        let (reply_sender, replies) = channel().map_err(cannot_query)?;
        let mut votes = Votes::new(self.members.len());
        let mut awaited = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            if !skipped.contains(&number) {
                votes.asked[number] = true;
                member.ask(number, &reply_sender, request.clone());
                awaited.push(number);
            }
        }
        while !awaited.is_empty() && !enough.is_some_and(|enough| enough(&votes)) {
            let stop = |_: &_| awaited.iter().for_each(|it| self.members[*it].interrupt());
            let next = received(&replies, interrupt, until).inspect_err(stop)?;
            let Some(MemberReply { number, answer, diagnostics }) = next else { break };
            awaited.retain(|other| *other != number);
            let described = answer.as_ref().map(&describe).map_err(Failure::clone);
            self.report(number, described, diagnostics);
            votes.votes[number] = Some(answer);
            if enough.is_none() && votes.count(|_| true) == votes.majority() {
                until = until.min(grace_until(begun, Instant::now()));
            }
        }
        Ok(votes)
    }

    /// Sends a request to all members, behind what they are busy with. An error also means that too
    /// few of them answered.
    fn ask_all<T: Send + 'static>(
        &mut self,
        request: impl Fn(&mut MemberStore) -> Result<T, Failure> + Clone + Send + 'static,
        describe: impl Fn(&T) -> String,
    ) -> Result<Votes<T>, Failure> {
        let votes = self.ask(&[], request, None, describe, NEVER)?;
        self.check_majority(&votes)?;
        Ok(votes)
    }

    fn check_majority<T>(&mut self, votes: &Votes<T>) -> Result<(), Failure> {
        let answered = votes.count(|_| true);
        if answered < votes.majority() { Err(self.too_few(answered, votes)) } else { Ok(()) }
    }

    /// The numbers of the members that have not finished an earlier request.
    fn busy(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|number| self.members[*number].is_busy()).collect()
    }

    /// Adds diagnostics for a member's reply.
    fn report(&mut self, number: usize, answer: Result<String, Failure>, own: Vec<Diagnostic>) {
        self.diagnostics.extend(own);
        self.diagnostics.push(match answer {
            Ok(what) => Diagnostic::Detail(format!("{}: {what}", self.members[number].name())),
            Err(Failure { kind: Misconfigured | NotHere, fault, .. })
                if !self.warned.contains(&number) =>
            {
                self.warned.push(number);
                let fault =
                    fault.reworded(|what| format!("{what} (continuing without this server)"));
                Diagnostic::Warning(fault.to_string())
            }
            Err(failure) => Diagnostic::Detail(failure.to_string()),
        });
    }

    /// The failure names the servers that were to be warned about, and it does not continue without
    /// them.
    fn too_few<T>(&mut self, useful: usize, votes: &Votes<T>) -> Failure {
        self.forget_warnings();
        votes.too_few(self.members.iter().map(Member::name), useful)
    }

    /// An error says what they would say.
    fn forget_warnings(&mut self) {
        self.diagnostics.retain(|it| !matches!(it, Diagnostic::Warning(_)));
        self.warned.clear();
    }

    /// Two members that are the same server, as far as their replies have shown.
    fn duplicate(&self) -> Option<UserMessage> {
        let mut names = BTreeMap::<String, &str>::new();
        let mut runs = self.members.iter().filter_map(|it| Some((it.run()?.id, it.name())));
        let (other, name) = runs.find_map(|(id, name)| Some((names.insert(id, name)?, name)))?;
        let fault = UserMessage::new(format!("{other} and {name} are the same server"));
        Some(fault.with_remedy("list it once"))
    }
}

fn cannot_query(error: io::Error) -> Failure {
    let failure = denial::failure(SystemCall::Resource, &error);
    failure.reworded(|why| format!("cannot query the servers: {why}"))
}
