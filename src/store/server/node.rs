//! One Redis or Valkey server: runs scripts and other commands on it.

pub mod handshake;
mod link;
mod master_link;
mod promotion;

use std::os::fd::AsFd;
use std::time::Duration;

pub use handshake::Probe;
use link::{ConnectionUse, Pipeline, PipelineKind, first_error};
use promotion::Promoted;

use super::refusal::{self, Refusal};
use super::scripts::{Call, Question};
use crate::report::Diagnostic;
use crate::rules::servers::Run;
use crate::rules::{Failure, FailureKind, UserMessage};
use crate::store::wire::{self, Cmd, Connection, Endpoint, Limit, Peer, ServerError, Value};
use crate::store::{Interrupt, NEVER};
use crate::system::wakeup::Wakeup;

/// How much later than its timeout a blocking command may at least return: the server checks for
/// timeouts ten times a second.
const BLOCKING_TOLERANCE: Duration = Duration::from_millis(250);

/// One server. It is connected to on first use.
pub struct Node {
    pub(in crate::store) peer: Peer,
    pub(in crate::store) io_timeout: Duration,
    probe: Option<Probe>,
    connection: Option<(Connection, ConnectionUse)>,
    /// Connections to other addresses of the server that have not answered a request. An undo goes
    /// to them too, because each may lead to another server, which may still execute that request.
    unanswered_elsewhere: Vec<Connection>,
    /// The run of the server program that answered last, if `Probe::Run` asks for it.
    pub(in crate::store) run: Option<Run>,
    /// The answer to the last `Question::Memory`, until it is read.
    pub(super) memory: Option<Value>,
    /// Whether it was promoted, as it told with its last commit.
    promoted: Option<Promoted>,
    /// Whether it ever did connect. Each new connection is sent to at once, so from then on the server
    /// may have a request.
    pub(in crate::store) has_connected: bool,
    /// Interrupts every request.
    pub(in crate::store) default_interrupt: Option<Wakeup>,
    /// What the server has reported about itself.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// The last script may not have arrived yet, or its reply may be missing. The reply to the next
    /// one may then be missing too, including a NOSCRIPT. So the next script travels as source: it
    /// runs even if the server does not know its hash.
    needs_source: bool,
    /// Whether this node of a cluster is still importing the lock's keys, so that it serves them only
    /// after ASKING.
    pub(super) is_importing: bool,
    /// Whether read-only scripts run by EVAL_RO, which users without write permission may use. Redis
    /// has it since version 7.
    has_read_only_eval: bool,
}

pub struct Reply<T = Value> {
    pub value: T,
    /// Whether an earlier copy of the request may have been executed too.
    pub repeated: bool,
    /// Why a success does not count: too few replicas have confirmed it.
    pub unconfirmed: Option<Failure>,
}

impl<T> Reply<T> {
    /// The value; an error if it `counts` only once enough replicas have confirmed it, and they
    /// have not.
    pub(in crate::store) fn confirmed(self, counts: impl FnOnce(&T) -> bool) -> Result<T, Failure> {
        match self.unconfirmed {
            Some(failure) if counts(&self.value) => Err(failure),
            _ => Ok(self.value),
        }
    }
}

impl Node {
    /// `io_timeout` bounds each connection attempt, and the replies to each pipeline.
    pub(crate) fn new(peer: Peer, io_timeout: Duration, probe: Option<Probe>) -> Self {
        Self {
            peer,
            io_timeout,
            probe,
            connection: None,
            unanswered_elsewhere: Vec::new(),
            run: None,
            memory: None,
            promoted: None,
            has_connected: false,
            default_interrupt: None,
            diagnostics: Vec::new(),
            needs_source: false,
            is_importing: false,
            has_read_only_eval: true,
        }
    }

    /// Another server with the same credentials and TLS files.
    pub(in crate::store) fn sibling(&self, endpoint: Endpoint) -> Self {
        Self::new(self.peer.at(endpoint), self.io_timeout, self.probe)
    }

    /// Where the server listens; it also names the server in messages.
    pub(in crate::store) fn endpoint(&self) -> &Endpoint {
        &self.peer.endpoint
    }

    /// Runs a script. It travels as its hash, together with AUTH on a new connection; if the server
    /// does not know the hash yet, that costs one more round trip.
    pub(in crate::store) fn run_script(
        &mut self,
        call: &Call,
        interrupt: Interrupt<'_>,
    ) -> Result<Reply, Refusal> {
        let (before, after) = (self.cluster_asking(), self.after_script(call));
        let commands = |script, _| [&before[..], &[script], &after].concat();
        let (replies, repeated) =
            self.run_by_hash_or_source(call, commands, before.len(), interrupt)?;
        self.read_script(replies, repeated, call)
    }

    /// Runs several scripts that do not change anything in one pipeline. All calls are of the same
    /// script, so the first one makes the server remember it if necessary.
    pub(in crate::store) fn run_scripts(
        &mut self,
        calls: &[Call],
    ) -> Result<Vec<Result<Value, Refusal>>, Refusal> {
        let Some((first, rest)) = calls.split_first() else { return Ok(Vec::new()) };
        let commands = |first: Cmd, read_only| {
            let rest = rest.iter().map(|call| call.by_hash(read_only));
            [first].into_iter().chain(rest).collect()
        };
        let (replies, _) = self.run_by_hash_or_source(first, commands, 0, NEVER)?;
        self.needs_source = false;
        let result = |(call, reply)| match reply {
            Value::ServerError(error) => Err(self.refused(&error, Some(call))),
            value => Ok(value),
        };
        Ok(calls.iter().zip(replies).map(result).collect())
    }

    /// Reads the replies to a script and to `after_script`.
    fn read_script(
        &mut self,
        replies: Vec<Value>,
        repeated: bool,
        call: &Call,
    ) -> Result<Reply, Refusal> {
        self.needs_source = false;
        let mut replies = replies.into_iter();
        let value = match replies.next() {
            Some(Value::ServerError(error)) => return Err(self.refused(&error, Some(call))),
            Some(value) => value,
            None => return Err(self.unexpected_reply().into()),
        };
        let confirmed = if call.min_replicas > 0 { replies.next() } else { None };
        let unconfirmed = match confirmed {
            Some(Value::Int(replicas)) => self.unconfirmed(replicas, call.min_replicas),
            Some(Value::ServerError(error)) => return Err(self.refused_after_script(&error)),
            Some(_) => return Err(self.unexpected_reply().into()),
            None => None,
        };
        for (question, answer) in call.questions.iter().zip(replies) {
            match (question, answer) {
                (Question::Memory, answer) => self.memory = Some(answer),
                (Question::MasterLink, Value::ServerError(error)) => {
                    let refused = self.refused(&error, None);
                    self.read_master_link(Err(refused))?;
                }
                (Question::MasterLink, answer) => self.read_master_link(Ok(answer))?,
                (Question::Promotion, Value::ServerError(error)) => {
                    return Err(self.refused_after_script(&error));
                }
                (Question::Promotion, answer) => {
                    self.learn_promotion(&answer).ok_or_else(|| self.unexpected_reply())?;
                }
            }
        }
        // A replica runs a script that only reads, too.
        if !call.is_read_only() {
            self.peer.note_served();
            if let Some((connection, _)) = &self.connection {
                self.peer.route.note_master(connection.address());
            }
        }
        Ok(Reply { value, repeated, unconfirmed })
    }

    /// The script itself has run.
    fn refused_after_script(&mut self, error: &ServerError) -> Refusal {
        self.refused(error, None).failure.but_maybe_executed().into()
    }

    /// Sends a script as its hash first, unless there may be no second attempt. `commands`, which is
    /// told whether the script only reads, puts others around it, and so its reply at `reply_at`.
    /// Returns the replies from that one on, and whether an earlier copy may have been executed.
    fn run_by_hash_or_source(
        &mut self,
        call: &Call,
        commands: impl Fn(Cmd, bool) -> Vec<Cmd>,
        reply_at: usize,
        interrupt: Interrupt<'_>,
    ) -> Result<(Vec<Value>, bool), Refusal> {
        let time = call.time(self.io_timeout);
        let timeout = if call.expects_no_reply { Duration::ZERO } else { time };
        let kind = match () {
            () if call.expects_no_reply => PipelineKind::LastUndo,
            () if call.is_undo() => PipelineKind::Undo,
            () if call.min_replicas > 0 => PipelineKind::Blocking,
            () => PipelineKind::Ordinary,
        };
        // An undo also goes to connections on which a reply is missing, and nobody reads those
        // replies. If no reply is read, or only a late one, nobody learns that the hash is unknown.
        let may_miss_noscript = call.is_undo()
            && (call.expects_no_reply
                || interrupt.at.is_some()
                || !self.unanswered_elsewhere.is_empty());
        let (mut repeated, mut as_source) = (false, self.needs_source || may_miss_noscript);
        loop {
            let read_only = call.is_read_only() && self.has_read_only_eval;
            let script =
                if as_source { call.as_source(read_only) } else { call.by_hash(read_only) };
            let commands = &commands(script, read_only);
            let exchanged = self.exchange(&Pipeline { commands, timeout, interrupt, kind });
            if let Err(refusal) = &exchanged {
                self.needs_source |= refusal.failure.maybe_executed();
            }
            let (mut replies, again) = exchanged?;
            repeated |= again;
            match replies.get(reply_at) {
                Some(Value::ServerError(error)) if !as_source && error.code() == "NOSCRIPT" => {
                    as_source = true;
                }
                Some(Value::ServerError(error)) if read_only && refusal::lacks_a_command(error) => {
                    self.has_read_only_eval = false;
                }
                _ => return Ok((replies.split_off(reply_at.min(replies.len())), repeated)),
            }
        }
    }

    /// What follows a script in the same pipeline: WAIT if its success must reach replicas, and the
    /// questions of the call. They are asked last, so that no promotion before a hold is missed, even
    /// on a connection that has outlasted it. WAIT may take a quarter of the I/O timeout, because the
    /// server checks for timeouts only ten times a second.
    fn after_script(&self, call: &Call) -> Vec<Cmd> {
        let timeout = (self.io_timeout / 4).as_millis();
        let wait = (call.min_replicas > 0)
            .then(|| wire::cmd("WAIT").arg(call.min_replicas).arg(timeout).to_owned());
        wait.into_iter().chain(call.questions.iter().map(|question| question.command())).collect()
    }

    /// Runs a blocking command for `at_most`, on the existing connection, and then a script, without
    /// a round trip in between. Returns `Value::Nil` at once without a connection: the wake-up
    /// message may have been lost with it, so the caller must ask again anyway. There is a second
    /// reply only if the script ran: the server may not know its hash.
    pub(in crate::store) fn sleep(
        &mut self,
        command: Cmd,
        call: Option<&Call>,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(Value, Option<Reply>), Refusal> {
        let call = call.filter(|_| !self.needs_source && !self.is_importing);
        let mut commands = [self.select(), self.cluster_asking(), vec![command]].concat();
        let before = commands.len();
        if let Some(call) = call {
            let read_only = false;
            commands.push(call.by_hash(read_only));
            commands.extend(self.after_script(call));
        }
        // The server has the I/O timeout to answer once the sleep is over.
        let timeout = self.io_timeout.max(BLOCKING_TOLERANCE);
        let default = self.default_interrupt.clone();
        let interrupt = interrupt.or(default.as_ref().map(Wakeup::as_fd));
        let limit = Limit::of_replies(at_most, timeout, interrupt);
        let replies = self.exchange_blocking(&commands, limit);
        let Some(mut replies) = replies.inspect_err(|_| self.needs_source = true)? else {
            return Ok((Value::Nil, None));
        };
        let rest = replies.split_off(before);
        let reply = match replies.pop() {
            Some(Value::ServerError(error)) => return Err(self.refused(&error, None)),
            reply => reply.unwrap_or(Value::Nil),
        };
        match (call, rest.first()) {
            (None, _) => Ok((reply, None)),
            (_, Some(Value::ServerError(error))) if error.code() == "NOSCRIPT" => Ok((reply, None)),
            (Some(call), _) => Ok((reply, Some(self.read_script(rest, false, call)?))),
        }
    }

    /// Runs one command that is not a script. An error reply is an error.
    pub(crate) fn ask(&mut self, command: Cmd, interrupt: Interrupt<'_>) -> Result<Value, Refusal> {
        let reply = self.ask_all(vec![command], interrupt)?.pop();
        reply.ok_or_else(|| self.unexpected_reply().into())
    }

    /// Runs commands in one pipeline. The first error reply is an error.
    fn ask_all(
        &mut self,
        commands: Vec<Cmd>,
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<Value>, Refusal> {
        let mut all = self.select();
        let before = all.len();
        all.extend(commands);
        let (timeout, kind) = (self.io_timeout, PipelineKind::Ordinary);
        let pipeline = Pipeline { commands: &all, timeout, interrupt, kind };
        let (mut replies, _) = self.exchange(&pipeline)?;
        match first_error(&replies) {
            Some(error) => Err(self.refused(error, None)),
            None => Ok(replies.split_off(before.min(replies.len()))),
        }
    }

    /// The SELECT that precedes commands that are not scripts; scripts select their own database.
    fn select(&self) -> Vec<Cmd> {
        match self.peer.database {
            0 => Vec::new(),
            database => vec![wire::cmd("SELECT").arg(database).to_owned()],
        }
    }

    /// The ASKING that precedes one command.
    fn cluster_asking(&self) -> Vec<Cmd> {
        self.is_importing.then(|| wire::cmd("ASKING")).into_iter().collect()
    }

    fn unconfirmed(&self, replicas: i64, wanted: u32) -> Option<Failure> {
        (replicas < i64::from(wanted)).then(|| {
            let fault = UserMessage::new(format!(
                "{replicas} of {wanted} replicas of {} confirmed the lock in time",
                self.peer
            ));
            let enough = u64::from(wanted) + 1;
            let remedy = format!(
                "check INFO replication there; to survive a failover, run {enough} replicas"
            );
            Failure::new(FailureKind::Unconfirmed { left: None }, fault.with_remedy(remedy))
        })
    }
}
