//! One Redis or Valkey server: the connection to it, and the running of scripts on it.

use std::time::Duration;

use super::refusal::{self, Refusal};
use super::scripts::{Call, Verbs};
use crate::report::Diagnostic;
use crate::store::wire::{self, Address, Cmd, Connection, Endpoint, ServerError, Tls, Value};
use crate::store::{Failure, Fate, Interrupt};
use crate::system::clock::Instant;

/// How much longer than asked for a server may sleep: it looks at its clock ten times a second.
const TICK: Duration = Duration::from_millis(250);

/// One server. The connection is made when first needed, kept, and made again after a failure.
pub(in crate::store) struct Node {
    address: Address,
    tls: Option<Tls>,
    io_timeout: Duration,
    question: Option<Question>,
    connection: Option<(Connection, Fit)>,
    /// May the last script still have to arrive, or to be answered? Then there may be no reply to
    /// the next one either, so it travels in full: one that the server did not know by its hash
    /// would be lost.
    unanswered: bool,
    /// Which commands run the scripts that only look.
    looking: Verbs,
    run: Option<Run>,
    diagnostics: Vec<Diagnostic>,
}

/// What a connection is good for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// For anything.
    Any,
    /// For what takes back what was asked for on it, which must not overtake that: the server has
    /// been silent for too long, or has refused us but runs our scripts all the same.
    TakingBack,
}

/// What is sent at once, and on which terms.
struct Flight<'a> {
    commands: &'a [Cmd],
    patience: Duration,
    interrupt: Interrupt<'a>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Keeps what is sent after it waiting on the server, which then forgets that if the
    /// connection is closed.
    Blocks,
    /// Undoes what was asked for before.
    TakesBack,
}

impl<'a> Flight<'a> {
    fn plain(commands: &'a [Cmd], patience: Duration, interrupt: Interrupt<'a>) -> Self {
        Self { commands, patience, interrupt, kind: Kind::Plain }
    }
}

/// What a new connection asks first, in the same flight as all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Question {
    /// Are you a master? One that is not, refuses.
    Role,
    /// How long have you been up?
    Uptime,
}

/// A reply, and whether the request may have been carried out once before this reply's request.
pub(in crate::store) struct Reply {
    pub(in crate::store) value: Value,
    pub(in crate::store) repeated: bool,
    /// Why it does not count if it is a success: too few replicas have it.
    pub(in crate::store) unconfirmed: Option<Failure>,
}

impl Node {
    /// An error is a file for TLS that cannot be used.
    pub(in crate::store) fn new(
        address: Address,
        io_timeout: Duration,
        question: Option<Question>,
    ) -> Result<Self, String> {
        let tls = match (&address.endpoint, &address.tls) {
            (Endpoint::Tcp { host, .. }, Some(files)) => Some(Tls::prepare(host, files)?),
            _ => None,
        };
        Ok(Self::of(address, tls, io_timeout, question))
    }

    fn of(
        address: Address,
        tls: Option<Tls>,
        io_timeout: Duration,
        question: Option<Question>,
    ) -> Self {
        let (connection, unanswered, looking) = (None, false, Verbs::ToLook);
        let (run, diagnostics) = (None, Vec::new());
        Self {
            address,
            tls,
            io_timeout,
            question,
            connection,
            unanswered,
            looking,
            run,
            diagnostics,
        }
    }

    /// Another server that takes the same user, password and authorities.
    pub(in crate::store) fn sibling(&self, endpoint: Endpoint) -> Result<Self, String> {
        let tls = match (&endpoint, &self.tls) {
            (Endpoint::Tcp { host, .. }, Some(tls)) => Some(tls.for_host(host)?),
            _ => None,
        };
        let address = self.address.at(endpoint);
        Ok(Self::of(address, tls, self.io_timeout, self.question))
    }

    pub(in crate::store) fn endpoint(&self) -> &Endpoint {
        &self.address.endpoint
    }

    /// What it has said of its uptime, if it was asked.
    pub(in crate::store) fn this_run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// What it has said since the last call that was about itself.
    pub(in crate::store) fn diagnostics(&mut self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.diagnostics)
    }

    /// Gives it another time to answer.
    pub(in crate::store) fn set_io_timeout(&mut self, io_timeout: Duration) {
        self.io_timeout = io_timeout;
    }

    /// Runs a script. It travels as its hash, together with AUTH if the connection is new; a server
    /// that does not know it yet costs one more round trip. `asking` asks a node of a cluster that
    /// is being given the lock's keys.
    pub(in crate::store) fn run(
        &mut self,
        call: &Call,
        asking: bool,
        interrupt: Interrupt<'_>,
    ) -> Result<Reply, Refusal> {
        let wait = self.wait(call);
        let flight = |command: Cmd| {
            let asking = asking.then(|| wire::cmd("ASKING"));
            asking.into_iter().chain([command]).chain(wait.clone()).collect::<Vec<_>>()
        };
        let (mut replies, repeated) =
            self.run_flight(call, flight, usize::from(asking), interrupt)?;
        self.unanswered = false;
        let confirmed = if call.min_replicas() > 0 { replies.pop() } else { None };
        let value = match replies.pop() {
            Some(Value::ServerError(error)) => {
                return Err(self.refused_script(&error, call));
            }
            Some(value) => value,
            None => return Err(self.unexpected_reply().into()),
        };
        let unconfirmed = match confirmed {
            Some(Value::Int(replicas)) => self.unconfirmed(replicas, call.min_replicas()),
            Some(Value::ServerError(error)) => return Err(self.refused(&error)),
            Some(_) => return Err(self.unexpected_reply().into()),
            None => None,
        };
        Ok(Reply { value, repeated, unconfirmed })
    }

    /// By its hash first, unless there may be no second try.
    fn run_flight(
        &mut self,
        call: &Call,
        flight: impl Fn(Cmd) -> Vec<Cmd>,
        script: usize,
        interrupt: Interrupt<'_>,
    ) -> Result<(Vec<Value>, bool), Refusal> {
        let patience = self.io_timeout;
        let kind = match () {
            () if call.takes_back() => Kind::TakesBack,
            () if call.min_replicas() > 0 => Kind::Blocks,
            () => Kind::Plain,
        };
        let (mut repeated, mut in_full) = (false, self.unanswered);
        loop {
            let verbs = self.verbs(call);
            let command = if in_full { call.in_full(verbs) } else { call.by_hash(verbs) };
            let commands = &flight(command);
            let (replies, again) =
                self.run_once(&Flight { commands, patience, interrupt, kind })?;
            repeated |= again;
            match replies.get(script) {
                Some(Value::ServerError(error)) if !in_full && error.code() == "NOSCRIPT" => {
                    in_full = true;
                }
                Some(Value::ServerError(error))
                    if verbs == Verbs::ToLook && refusal::lacks_a_command(error) =>
                {
                    self.looking = Verbs::Any;
                }
                _ => return Ok((replies, repeated)),
            }
        }
    }

    fn run_once(&mut self, flight: &Flight<'_>) -> Result<(Vec<Value>, bool), Refusal> {
        let ran = self.exchange(flight);
        if let Err(Refusal::Failed(failure)) = &ran {
            self.unanswered |= failure.maybe_executed();
        }
        ran
    }

    fn verbs(&self, call: &Call) -> Verbs {
        if call.only_looks() { self.looking } else { Verbs::Any }
    }

    /// A script by its hash, to be sent along with others to a server that knows it.
    pub(in crate::store) fn by_hash(&self, call: &Call) -> Cmd {
        call.by_hash(self.verbs(call))
    }

    /// Goes along with what counts only once replicas have it. It is given a quarter of the time
    /// there is for an answer: a server looks at its clock ten times a second.
    fn wait(&self, call: &Call) -> Option<Cmd> {
        let patience = (self.io_timeout / 4).as_millis();
        (call.min_replicas() > 0)
            .then(|| wire::cmd("WAIT").arg(call.min_replicas()).arg(patience).to_owned())
    }

    /// Sleeps in a blocking command for so long at most, on the connection there is. Without one
    /// there is nothing to wait for: the message that a lost reply brought does not come again, and
    /// asking will tell.
    pub(in crate::store) fn sleep(
        &mut self,
        command: Cmd,
        asking: bool,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Refusal> {
        let Some((mut connection, Fit::Any)) = self.connection.take() else { return Ok(()) };
        let mut flight = self.select();
        flight.extend(asking.then(|| wire::cmd("ASKING")));
        flight.push(command);
        let patience = at_most + self.io_timeout + TICK;
        let replies = connection.exchange(&flight, patience, interrupt);
        // A connection that is blocked may not carry what follows, so it is not kept.
        let replies = replies.inspect_err(|_| self.unanswered = true)?;
        self.connection = Some((connection, Fit::Any));
        match replies.last() {
            Some(Value::ServerError(error)) => Err(self.refused(error)),
            // A message or the end of the time: either way the next thing is to ask again.
            _ => Ok(()),
        }
    }

    /// One command that is not a script. An error that the server answers is an error here.
    pub(in crate::store) fn ask(
        &mut self,
        command: Cmd,
        interrupt: Interrupt<'_>,
    ) -> Result<Value, Refusal> {
        let mut flight = self.select();
        flight.push(command);
        let flight = Flight::plain(&flight, self.io_timeout, interrupt);
        let (mut replies, _) = self.exchange(&flight)?;
        let error = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(error),
            _ => None,
        });
        match error {
            Some(error) => Err(self.refused(error)),
            None => replies.pop().ok_or_else(|| self.unexpected_reply().into()),
        }
    }

    /// Many commands in one flight. Errors are left among the replies.
    pub(in crate::store) fn ask_all(
        &mut self,
        mut commands: Vec<Cmd>,
    ) -> Result<Vec<Value>, Refusal> {
        let select = self.select();
        let ahead = select.len();
        commands.splice(0..0, select);
        let flight = Flight::plain(&commands, self.io_timeout, None);
        let (mut replies, _) = self.exchange(&flight)?;
        match replies.first() {
            Some(Value::ServerError(error)) if ahead > 0 => Err(self.refused(error)),
            _ => Ok(replies.split_off(ahead)),
        }
    }

    /// Says so if it evicts keys rather than refuse writes when it is out of memory.
    pub(in crate::store) fn may_evict(&mut self) -> Option<String> {
        let memory = self.ask(wire::cmd("INFO").arg("memory").to_owned(), None).ok()?;
        let memory: String = wire::from_redis_value(memory).ok()?;
        let field = |name: &str| {
            let line = memory.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.strip_prefix(':')).map(str::trim)
        };
        let (limit, policy) = (field("maxmemory")?, field("maxmemory_policy")?);
        (limit != "0" && policy != "noeviction").then(|| {
            format!(
                "{} evicts keys when its memory is full (maxmemory-policy {policy}), locks too; \
                 noeviction does not",
                self.address
            )
        })
    }

    /// One flight. A connection that had been idle may have been closed under us, so what fails on
    /// it is tried once more on a new one: all our scripts can be repeated. Says if that may have
    /// happened. A server that is silent is not asked again: it has had its time.
    fn exchange(&mut self, flight: &Flight<'_>) -> Result<(Vec<Value>, bool), Refusal> {
        let Some((mut connection, fit)) = self.connection.take() else {
            return Ok((self.exchange_anew(flight)?, false));
        };
        if fit == Fit::TakingBack && flight.kind != Kind::TakesBack {
            return Ok((self.exchange_anew(flight)?, false));
        }
        match connection.exchange(flight.commands, flight.patience, flight.interrupt) {
            Ok(replies) => {
                self.connection = Some((connection, fit));
                Ok((replies, false))
            }
            Err(Failure::Unreachable { fate: fate @ (Fate::Lost | Fate::NotSent), .. }) => {
                let replies = self.exchange_anew(flight)?;
                Ok((replies, fate != Fate::NotSent))
            }
            Err(failure) => {
                // Silent again: the server, if it is ever heard of again, does both.
                if fit == Fit::Any {
                    self.keep(connection, flight, &failure);
                }
                Err(failure.into())
            }
        }
    }

    /// Keeps a connection on which the reply is missing, for what has to come after the request.
    fn keep(&mut self, connection: Connection, flight: &Flight<'_>, failure: &Failure) {
        let fit = match (failure, flight.kind) {
            (_, Kind::Blocks) => return,
            (Failure::Interrupted { sent: true }, _) => Fit::Any,
            // Nothing comes after what takes back, and another connection may fare better.
            (Failure::Unreachable { fate: Fate::Pending, .. }, Kind::Plain) => Fit::TakingBack,
            _ => return,
        };
        self.connection = Some((connection, fit));
    }

    fn exchange_anew(&mut self, flight: &Flight<'_>) -> Result<Vec<Value>, Refusal> {
        let (endpoint, tls) = (&self.address.endpoint, self.tls.as_ref());
        let Flight { commands, patience, interrupt, kind } = *flight;
        let mut connection = Connection::open(endpoint, tls, self.io_timeout, interrupt)?;
        let introduction = self.introduction();
        let mut all = introduction.clone();
        all.extend_from_slice(commands);
        let mut replies = match connection.exchange(&all, patience, interrupt) {
            Ok(replies) => replies,
            Err(failure) => {
                self.keep(connection, flight, &failure);
                return Err(failure.into());
            }
        };
        let rest = replies.split_off(introduction.len());
        let refused = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(self.refused(error)),
            _ => None,
        });
        if let Some(refused) = refused {
            let executed = rest.iter().any(|reply| !matches!(reply, Value::ServerError(_)));
            return self.refused_but(executed, refused, connection, kind).map(|()| rest);
        }
        match (self.question, replies.pop()) {
            (Some(Question::Role), Some(role)) if !is_master(&role) => {
                return Err(Refusal::Demoted { peer: self.address.to_string() });
            }
            (Some(Question::Uptime), Some(information)) => {
                self.run = Some(Run::of(&information).ok_or_else(|| self.unexpected_reply())?);
            }
            _ => {}
        }
        self.connection = Some((connection, Fit::Any));
        Ok(rest)
    }

    /// A server has refused us, and may have run the script behind that in the same flight all the
    /// same, since its default user needs no password. The connection, which is that user's, then
    /// serves to take back what was asked for. If that is what the script did, it is done.
    fn refused_but(
        &mut self,
        executed: bool,
        refused: Refusal,
        connection: Connection,
        kind: Kind,
    ) -> Result<(), Refusal> {
        if !executed {
            return Err(refused);
        }
        match (refused, kind) {
            (Refusal::Failed(failure), Kind::TakesBack) => {
                let what = format!("{failure}; the lock was released anyway");
                self.diagnostics.push(Diagnostic::Warning(what));
                self.connection = Some((connection, Fit::TakingBack));
                Ok(())
            }
            (Refusal::Failed(Failure::Misconfigured { what, .. }), _) => {
                self.unanswered = true;
                self.connection = Some((connection, Fit::TakingBack));
                let what = format!(
                    "{what}; unauthenticated clients can run scripts there, so the request took \
                     effect and is being undone"
                );
                Err(Failure::Misconfigured { what, executed }.into())
            }
            (refused, _) => Err(refused),
        }
    }

    /// What a new connection has to say first.
    fn introduction(&self) -> Vec<Cmd> {
        let mut commands = Vec::new();
        if let Some(password) = &self.address.password {
            let mut auth = wire::cmd("AUTH");
            auth.arg(self.address.username.as_slice()).arg(password);
            commands.push(auth);
        }
        commands.extend(self.question.map(|question| match question {
            Question::Role => wire::cmd("ROLE"),
            Question::Uptime => wire::cmd("INFO").arg("server").to_owned(),
        }));
        commands
    }

    /// Goes ahead of a command that is not a script; those select their database themselves.
    fn select(&self) -> Vec<Cmd> {
        match self.address.database {
            0 => Vec::new(),
            database => vec![wire::cmd("SELECT").arg(database).to_owned()],
        }
    }

    pub(in crate::store) fn refused(&self, error: &ServerError) -> Refusal {
        refusal::of(error, &self.address)
    }

    pub(in crate::store) fn refused_script(&self, error: &ServerError, call: &Call) -> Refusal {
        refusal::of_script(error, &self.address, call)
    }

    fn unconfirmed(&self, replicas: i64, wanted: u32) -> Option<Failure> {
        (replicas < i64::from(wanted)).then(|| {
            Failure::Unconfirmed(format!(
                "{replicas} of {wanted} replicas of {} have confirmed the lock in time; see its \
                 INFO replication",
                self.address
            ))
        })
    }

    /// For a reply that is well-formed and means nothing to us.
    pub(in crate::store) fn unexpected_reply(&mut self) -> Failure {
        self.connection = None;
        Failure::Misconfigured {
            what: format!("{} answered something that no Redis or Valkey answers", self.address),
            executed: true,
        }
    }
}

fn is_master(role: &Value) -> bool {
    match role {
        Value::Array(fields) => {
            matches!(fields.first(), Some(Value::BulkString(role)) if role == b"master")
        }
        _ => false,
    }
}

/// One run of a server's program, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Run {
    /// No two servers have the same, whatever they are called.
    pub(in crate::store) id: String,
    /// Since when at least.
    pub(in crate::store) since: Instant,
}

impl Run {
    /// From INFO.
    fn of(information: &Value) -> Option<Self> {
        let text = match information {
            Value::BulkString(text) => String::from_utf8_lossy(text),
            _ => return None,
        };
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let uptime = Duration::from_secs(field("uptime_in_seconds:")?.parse().ok()?);
        // The difference of two times that were both cut to seconds may be most of one too long.
        let uptime = uptime.saturating_sub(Duration::from_secs(1));
        Some(Self { id: field("run_id:")?.to_owned(), since: Instant::now() - uptime })
    }
}
