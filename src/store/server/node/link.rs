//! The connection to one server, which rlock opens on first use, keeps, and opens again after a
//! failure.

use std::os::fd::AsFd;
use std::time::Duration;

use super::Node;
use super::handshake::{self, Probe};
use crate::report::Diagnostic;
use crate::rules::servers::Run;
use crate::rules::{Delivery, Failure, FailureKind};
use crate::store::server::refusal::{self, Refusal};
use crate::store::server::scripts::Call;
use crate::store::wire::{Cmd, Connection, Endpoint, Limit, ServerError, Value};
use crate::store::{Interrupt, NEVER};
use crate::system::wakeup::Wakeup;

/// How long the last undo may take to connect: the process is about to end.
const TO_CONNECT_AT_THE_END: Duration = Duration::from_millis(50);

/// How many addresses the first request is sent to at most, one after another.
const MOST_TRIES: usize = 3;

/// What a connection may still be used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionUse {
    Any,
    /// Only to undo an earlier request on the same connection, which the undo must not overtake.
    /// Either the server did not answer that request in time, or it rejected the login but runs
    /// scripts for clients that are not logged in.
    UndoOnly,
}

/// Commands that are sent together, and how to treat them.
#[derive(Clone, Copy)]
pub(super) struct Pipeline<'a> {
    pub(super) commands: &'a [Cmd],
    /// For all replies together; zero for the last undo.
    pub(super) timeout: Duration,
    pub(super) interrupt: Interrupt<'a>,
    pub(super) kind: PipelineKind,
}

/// What the commands of a pipeline do to those that follow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PipelineKind {
    Ordinary,
    /// The server delays commands that follow on the same connection, and discards them if the
    /// connection closes.
    Blocking,
    /// Undoes an earlier request: a release or a withdrawal.
    Undo,
    /// An undo whose reply nobody awaits.
    LastUndo,
}

impl PipelineKind {
    fn is_undo(self) -> bool {
        matches!(self, Self::Undo | Self::LastUndo)
    }
}

pub(super) fn first_error(replies: &[Value]) -> Option<&ServerError> {
    replies.iter().find_map(|reply| match reply {
        Value::ServerError(error) => Some(error),
        _ => None,
    })
}

impl Node {
    /// What an error reply means, to a script or to another command. If another server may serve
    /// the request, closes the connection: the next one may lead there.
    pub(super) fn refused(&mut self, error: &ServerError, call: Option<&Call>) -> Refusal {
        let refusal = match call {
            Some(call) => refusal::of_script(error, &self.peer, call),
            None => refusal::of(error, &self.peer),
        };
        match &self.connection {
            Some((connection, _)) if refusal.ends_connection() => {
                let refusal = refusal.at(connection.address(), &self.peer);
                self.leave_connection();
                refusal
            }
            _ => refusal,
        }
    }

    /// Closes the connection, and tries the other addresses of its server before this one.
    fn leave_connection(&mut self) {
        if let Some((connection, _)) = self.connection.take() {
            self.peer.route.defer(connection.address());
        }
    }

    /// Whether one of these replies says that another server may serve the request.
    fn leads_elsewhere(&self, replies: &[Value]) -> bool {
        let refusal = first_error(replies).map(|error| refusal::of(error, &self.peer));
        refusal.is_some_and(|refusal| refusal.ends_connection())
    }

    /// For a reply that is valid RESP but not what the command returns. Closes the connection.
    pub(in crate::store) fn unexpected_reply(&mut self) -> Failure {
        self.connection = None;
        let what = format!("unexpected reply from {}", self.peer);
        Failure::misconfigured(what, "check that it is Redis or Valkey").but_maybe_executed()
    }

    /// Sends commands and reads their replies. A connection that the server has closed, or whose
    /// address the endpoint has left, is replaced first. If one breaks later, it is replaced and the
    /// commands are sent once more; all scripts can be repeated. The second value is whether an
    /// earlier copy may have been executed too.
    ///
    /// After an address that does not answer, the next call tries the others first. The first call
    /// does so itself, because after a first failure there may be no next call.
    pub(super) fn exchange(
        &mut self,
        pipeline: &Pipeline<'_>,
    ) -> Result<(Vec<Value>, bool), Refusal> {
        let default = self.default_interrupt.clone();
        let interrupt = pipeline.interrupt.or(default.as_ref().map(Wakeup::as_fd));
        let pipeline = &Pipeline { interrupt, ..*pipeline };
        if pipeline.kind.is_undo() {
            for mut connection in self.unanswered_elsewhere.drain(..) {
                let _ = connection
                    .exchange(pipeline.commands, Limit::of_attempt(Duration::ZERO, NEVER));
            }
        }
        let is_unix = matches!(self.peer.endpoint, Endpoint::Unix(_));
        let is_usable = |(connection, usable_for): &mut (Connection, ConnectionUse)| {
            let is_meant = *usable_for == ConnectionUse::Any || pipeline.kind.is_undo();
            // A server stops reading from a Unix socket that was closed before its replies were read.
            // So the last request takes another connection. Its tombstone rejects the earlier one.
            let is_last = pipeline.kind == PipelineKind::LastUndo;
            let is_stuck = is_last && is_unix && connection.has_pending();
            // Check before sending. After a copy that was lost with a dead connection, "not held"
            // could mean that it was executed, or that the server lost the lock in a restart.
            is_meant && !is_stuck && !connection.is_closed() && !connection.is_left()
        };
        // One that is not usable stays until `open` replaces it.
        let mut usable = self.connection.take_if(is_usable);
        let is_first = !self.has_connected;
        let (mut tries, mut is_repeated) = (0, false);
        loop {
            let is_new = usable.is_none();
            let connection = usable.take().map_or_else(|| self.open(pipeline), Ok);
            tries += 1;
            let has_more = is_first && tries < self.peer.route.count().min(MOST_TRIES);
            // A share of the time for replies only: one attempt to connect tries all addresses.
            let timeout = if has_more { pipeline.timeout / 2 } else { pipeline.timeout };
            let bounded = &Pipeline { timeout, ..*pipeline };
            // The server may have closed an old connection, and another address may answer.
            let may_repeat = |it: &Failure| it.is_lost() && !is_new || it.is_pending() && has_more;
            match connection.and_then(|it| self.exchange_on(it, is_new, bounded)) {
                // The name may lead to another server by now. This one has not executed the request.
                Ok(replies) if !is_new && self.leads_elsewhere(&replies) => {
                    self.leave_connection();
                }
                Ok(replies) => return Ok((replies, is_repeated)),
                Err(refusal) if may_repeat(&refusal.failure) => is_repeated = true,
                Err(mut refusal) => {
                    if is_repeated {
                        refusal.failure = refusal.failure.but_maybe_executed();
                    }
                    return Err(refusal);
                }
            }
        }
    }

    /// Sends a command that blocks on the server, on the existing connection only; `None` without
    /// one. A connection that may still be blocked is closed.
    pub(super) fn exchange_blocking(
        &mut self,
        commands: &[Cmd],
        limit: Limit<'_>,
    ) -> Result<Option<Vec<Value>>, Failure> {
        let Some((mut connection, ConnectionUse::Any)) = self.connection.take() else {
            return Ok(None);
        };
        if connection.is_left() {
            return Ok(None);
        }
        let replies = connection.exchange(commands, limit);
        match &replies {
            Ok(_) => self.connection = Some((connection, ConnectionUse::Any)),
            Err(failure) => self.keep_unanswered(connection, PipelineKind::Blocking, failure),
        }
        replies.map(Some)
    }

    /// Keeps a connection on which a reply is missing if the undo must follow the request there. If
    /// the address was awaited in vain, the next request tries the others of its server first. An
    /// interrupt says nothing against an address that did connect.
    fn keep_unanswered(&mut self, connection: Connection, kind: PipelineKind, failure: &Failure) {
        match failure.was_awaited_in_vain() {
            true => self.peer.route.defer(connection.address()),
            false => self.peer.route.prefer(connection.address()),
        }
        let usable_for = match (failure.kind, failure.delivery, kind) {
            (_, _, PipelineKind::Blocking) => return,
            (FailureKind::Interrupted, Delivery::Pending, _) => ConnectionUse::Any,
            // No request follows an undo, and a new connection may work.
            (_, Delivery::Pending, PipelineKind::Ordinary) => ConnectionUse::UndoOnly,
            _ => return,
        };
        self.connection = Some((connection, usable_for));
    }

    /// Connects anew. Keeps an earlier connection only if a reply is missing on it and it leads to
    /// another address: an undo must follow the request there.
    fn open(&mut self, pipeline: &Pipeline<'_>) -> Result<(Connection, ConnectionUse), Refusal> {
        let at_most = match pipeline.kind {
            PipelineKind::LastUndo if !self.has_connected => {
                // There is nothing to undo.
                return Err(Failure::interrupted(Delivery::NotExecuted).into());
            }
            PipelineKind::LastUndo => TO_CONNECT_AT_THE_END.min(self.io_timeout),
            PipelineKind::Undo => pipeline.timeout,
            PipelineKind::Ordinary | PipelineKind::Blocking => self.io_timeout,
        };
        let earlier = self.connection.take().map(|(earlier, _)| earlier);
        self.unanswered_elsewhere.extend(earlier.filter(Connection::has_pending));
        let limit = Limit::of_attempt(at_most, pipeline.interrupt);
        let connection = Connection::open(&self.peer, limit)?;
        self.unanswered_elsewhere.retain(|earlier| earlier.address() != connection.address());
        self.has_connected = true;
        Ok((connection, ConnectionUse::Any))
    }

    fn exchange_on(
        &mut self,
        (mut connection, usable_for): (Connection, ConnectionUse),
        is_new: bool,
        pipeline: &Pipeline<'_>,
    ) -> Result<Vec<Value>, Refusal> {
        let Pipeline { commands, timeout, interrupt, kind } = *pipeline;
        let handshake = is_new.then(|| handshake::commands(&mut self.peer, self.probe));
        let handshake = handshake.unwrap_or_default();
        let all = [&handshake, commands].concat();
        let limit = Limit::of_replies(Duration::ZERO, timeout, interrupt);
        let mut replies = match connection.exchange(&all, limit) {
            Ok(replies) => replies,
            Err(failure) => {
                // If the undo got no answer either, both requests are already under way in the
                // right order, and the connection is useless.
                if usable_for == ConnectionUse::Any {
                    self.keep_unanswered(connection, kind, &failure);
                }
                return Err(failure.into());
            }
        };
        self.peer.route.prefer(connection.address());
        let rest = replies.split_off(handshake.len());
        if let Some(refused) = first_error(&replies).map(|error| self.refused(error, None)) {
            if rest.iter().all(|reply| matches!(reply, Value::ServerError(_))) {
                return Err(refused);
            }
            return self.executed_but(refused, connection, kind).map(|()| rest);
        }
        match (self.probe, replies.pop()) {
            (Some(Probe::Role), Some(role)) if !handshake::is_master(&role) => {
                self.peer.route.defer(connection.address());
                let refusal = refusal::demoted(&self.peer);
                return Err(refusal.at(connection.address(), &self.peer));
            }
            (Some(Probe::Run), Some(information)) => {
                let run = handshake::run(&information).ok_or_else(|| self.unexpected_reply())?;
                // An uptime is rounded down, so the earliest start of the same run is the best.
                let is_better = |known: &Run| known.id == run.id && known.since < run.since;
                self.run = self.run.take().filter(is_better).or(Some(run));
            }
            _ => {}
        }
        self.connection = Some((connection, usable_for));
        Ok(rest)
    }

    /// The server rejected the login. If its default user needs no password, it has executed the
    /// script in the same pipeline all the same, as that user. The connection is then kept to undo
    /// the request. If the script was itself an undo, it succeeded.
    fn executed_but(
        &mut self,
        refused: Refusal,
        connection: Connection,
        kind: PipelineKind,
    ) -> Result<(), Refusal> {
        self.connection = Some((connection, ConnectionUse::UndoOnly));
        if !kind.is_undo() {
            return Err(refused.failure.but_maybe_executed().into());
        }
        let warning = refused.failure.reworded(|what| format!("{what} (the lock was released)"));
        self.diagnostics.push(Diagnostic::Warning(warning.to_string()));
        Ok(())
    }
}
