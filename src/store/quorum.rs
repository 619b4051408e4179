//! Locks on a majority of several independent servers. A minority may be down, frozen or cut off.
//!
//! This is Redlock:
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>. It differs where a
//! shell script needs more than that page describes:
//!
//! - All servers are asked at once, under one timeout, so that a frozen one costs nothing.
//! - Each server runs the same scripts as one server does, so modes, histories and reasons
//!   exist here too. A slot needs more servers than a majority: see `rules::quorum::required`.
//! - A majority agrees on one fencing token. The next grant needs a majority too, so it meets at
//!   least one server that has this token, which then gives a larger one.
//! - A restarted server does not vote until every lease that it may have forgotten has expired, so
//!   its restart need not be delayed: see `rules::quorum::member_state`.
//! - The next renewal restores holds that a minority of servers has lost.
//! - Waiters are served in one order, although no server decides it: see
//!   `rules::quorum::Acquisition`.
//!
//! The holder's validity time, which is the TTL less the elapsed time and the clock drift, is the
//! same as for one server: see `Lease`.
//!
//! `rules::quorum` interprets the votes and is pure. `members` contains the threads and their
//! messages. `acquire` uses both to acquire a lock, and `requests` uses both for everything else.
//! `posting` sends requests without waiting for replies.

mod acquire;
mod distinct;
mod members;
mod posting;
mod requests;

use std::time::Duration;

use crate::rules::quorum::Votes;
use acquire::Attempt;
use distinct::require_distinct;
use members::{IfBusy, Member, MemberStore, Terms};

use super::Interrupt;
use super::wire::Address;
use crate::report::Diagnostic;
use crate::rules::quorum::Run;
use crate::rules::{Failure, Fence, Instant, Request, Token, UserMessage};
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
    /// Becomes readable when a member becomes idle.
    idle: Wakeup,
}

/// The last grant, to restore it on a server that has lost it.
struct Granted {
    request: Request,
    fence: Fence,
    at: Instant,
}

impl Quorum {
    /// `io_timeout` bounds the replies to each request. A grant or a renewal counts on a server
    /// once `min_replicas` of its replicas have confirmed it.
    ///
    /// # Errors
    ///
    /// One line: two URLs lead to the same server, a TLS file cannot be used, or no thread can be
    /// started.
    pub(super) fn new(
        servers: &[Address],
        io_timeout: Duration,
        min_replicas: u32,
    ) -> Result<Self, String> {
        require_distinct(servers, io_timeout / 4)?;
        let idle = Wakeup::new().map_err(|error| format!("cannot query the servers: {error}"))?;
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

    /// `members::ask` with the I/O timeout. Adds a diagnostic for each reply.
    fn ask<T: Send + 'static>(
        &mut self,
        majority: Option<usize>,
        if_busy: IfBusy,
        request: impl Fn(&mut MemberStore, Interrupt<'_>) -> Result<T, Failure> + Clone + Send + 'static,
        enough: impl Fn(&Votes<T>) -> bool,
        describe: impl Fn(&T) -> String,
        interrupt: Interrupt<'_>,
    ) -> Result<Votes<T>, Failure> {
        let mut replies = Vec::new();
        let observe = |number: usize, answer: &Result<T, Failure>, own: Vec<Diagnostic>| {
            replies.push((number, answer.as_ref().map(&describe).map_err(Failure::clone), own));
        };
        let (members, terms) =
            (&self.members, Terms { timeout: self.io_timeout, majority, if_busy });
        let votes = members::ask(members, &terms, request, enough, observe, interrupt);
        for (number, answer, own) in replies {
            self.report(number, answer, own);
        }
        votes
    }

    /// Adds diagnostics for a member's reply.
    fn report(&mut self, number: usize, answer: Result<String, Failure>, own: Vec<Diagnostic>) {
        self.diagnostics.extend(own);
        self.diagnostics.push(match answer {
            Ok(what) => Diagnostic::Detail(format!("{}: {what}", self.members[number].name())),
            Err(Failure::Misconfigured { fault, .. }) if !self.warned.contains(&number) => {
                self.warned.push(number);
                let fault =
                    fault.reworded(|what| format!("{what} (continuing without this server)"));
                Diagnostic::Warning(fault.to_string())
            }
            Err(failure) => Diagnostic::Detail(failure.to_string()),
        });
    }

    fn granted(&mut self, request: &Request, fence: Fence) {
        self.granted = Some(Granted { request: request.clone(), fence, at: Instant::now() });
    }

    fn too_few<T>(&self, useful: usize, required: usize, votes: &Votes<T>) -> Failure {
        votes.too_few(self.members.iter().map(Member::name), useful, required)
    }

    /// Two members that are the same server, as far as their replies have shown.
    fn duplicate(&self) -> Option<UserMessage> {
        let mut seen = Vec::<(Run, &str)>::new();
        for member in &self.members {
            let Some(run) = member.run() else { continue };
            if let Some((_, other)) = seen.iter().find(|(known, _)| known.id == run.id) {
                let fault =
                    UserMessage::new(format!("{other} and {} are the same server", member.name()));
                return Some(fault.with_remedy("list it once"));
            }
            seen.push((run, member.name()));
        }
        None
    }
}
