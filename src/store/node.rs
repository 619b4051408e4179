//! One Redis or Valkey server: the connection to it, and the running of scripts on it.

use std::time::Duration;

use redis::{Cmd, Value};

use super::address::{Address, Endpoint};
use super::connection::Connection;
use super::refusal::{self, Refusal};
use super::scripts::Call;
use super::tls::Tls;
use super::{Failure, Fate, Interrupt};
use crate::clock::Instant;

/// How much longer than asked for a server may sleep: it looks at its clock ten times a second.
const TICK: Duration = Duration::from_millis(250);

/// One server. The connection is made when first needed, kept, and made again after a failure.
pub(super) struct Node {
    address: Address,
    tls: Option<Tls>,
    io_timeout: Duration,
    question: Option<Question>,
    connection: Option<Connection>,
    run: Option<Run>,
}

/// What a new connection asks first, in the same flight as all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Are you a master? One that is not, refuses.
    Role,
    /// How long have you been up?
    Uptime,
}

/// A reply, and whether the request may have been carried out once before this reply's request.
pub(super) struct Reply {
    pub(super) value: Value,
    pub(super) repeated: bool,
    /// Why it does not count if it is a success: too few replicas have it.
    pub(super) unconfirmed: Option<Failure>,
}

impl Node {
    /// An error is a file for TLS that cannot be used.
    pub(super) fn new(
        address: Address,
        io_timeout: Duration,
        question: Option<Question>,
    ) -> Result<Self, String> {
        let tls = match (&address.endpoint, &address.tls) {
            (Endpoint::Tcp { host, .. }, Some(files)) => Some(Tls::prepare(host, files)?),
            _ => None,
        };
        Ok(Self { address, tls, io_timeout, question, connection: None, run: None })
    }

    /// Another server that takes the same user, password and authorities.
    pub(super) fn sibling(&self, endpoint: Endpoint) -> Result<Self, String> {
        let tls = match (&endpoint, &self.tls) {
            (Endpoint::Tcp { host, .. }, Some(tls)) => Some(tls.for_host(host)?),
            _ => None,
        };
        let address = self.address.at(endpoint);
        let Self { io_timeout, question, .. } = *self;
        Ok(Self { address, tls, io_timeout, question, connection: None, run: None })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.address.endpoint
    }

    /// What it has said of its uptime, if it was asked.
    pub(super) fn this_run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// Gives it another time to answer.
    pub(super) fn set_io_timeout(&mut self, io_timeout: Duration) {
        self.io_timeout = io_timeout;
    }

    /// Runs a script. It travels as its hash, together with AUTH if the connection is new; a server
    /// that does not know it yet costs one more round trip. `asking` asks a node of a cluster that
    /// is being given the lock's keys.
    pub(super) fn run(
        &mut self,
        call: &Call,
        asking: bool,
        interrupt: Interrupt<'_>,
    ) -> Result<Reply, Refusal> {
        let wait = self.wait(call);
        let flight = |command: Cmd| {
            let asking = asking.then(|| redis::cmd("ASKING"));
            asking.into_iter().chain([command]).chain(wait.clone()).collect::<Vec<_>>()
        };
        let flight_by_hash = flight(call.by_hash());
        let (mut replies, mut repeated) =
            self.exchange(&flight_by_hash, self.io_timeout, interrupt)?;
        let script = usize::from(asking);
        if matches!(replies.get(script), Some(Value::ServerError(e)) if e.code() == "NOSCRIPT") {
            let flight_in_full = flight(call.in_full());
            let again;
            (replies, again) = self.exchange(&flight_in_full, self.io_timeout, interrupt)?;
            repeated |= again;
        }
        let confirmed = if call.min_replicas() > 0 { replies.pop() } else { None };
        let value = match replies.pop() {
            Some(Value::ServerError(error)) => {
                return Err(refusal::of_script(&error, &self.address, call));
            }
            Some(value) => value,
            None => return Err(self.nonsense().into()),
        };
        let unconfirmed = match confirmed {
            Some(Value::Int(replicas)) => self.unconfirmed(replicas, call.min_replicas()),
            Some(Value::ServerError(error)) => return Err(self.refused(&error)),
            Some(_) => return Err(self.nonsense().into()),
            None => None,
        };
        Ok(Reply { value, repeated, unconfirmed })
    }

    /// Goes along with what counts only once replicas have it. It is given a quarter of the time
    /// there is for an answer: a server looks at its clock ten times a second.
    fn wait(&self, call: &Call) -> Option<Cmd> {
        let patience = (self.io_timeout / 4).as_millis();
        (call.min_replicas() > 0)
            .then(|| redis::cmd("WAIT").arg(call.min_replicas()).arg(patience).to_owned())
    }

    /// Sleeps in a blocking command for so long at most, on the connection there is. Without one
    /// there is nothing to wait for: the message that a lost reply brought does not come again, and
    /// asking will tell.
    pub(super) fn sleep(
        &mut self,
        command: Cmd,
        asking: bool,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Refusal> {
        let Some(mut connection) = self.connection.take() else { return Ok(()) };
        let mut flight = self.select();
        flight.extend(asking.then(|| redis::cmd("ASKING")));
        flight.push(command);
        let replies = connection.exchange(&flight, at_most + self.io_timeout + TICK, interrupt)?;
        self.connection = Some(connection);
        match replies.last() {
            Some(Value::ServerError(error)) => Err(self.refused(error)),
            // A message or the end of the time: either way the next thing is to ask again.
            _ => Ok(()),
        }
    }

    /// One command that is not a script. An error that the server answers is an error here.
    pub(super) fn ask(&mut self, command: Cmd, interrupt: Interrupt<'_>) -> Result<Value, Refusal> {
        let mut flight = self.select();
        flight.push(command);
        let (mut replies, _) = self.exchange(&flight, self.io_timeout, interrupt)?;
        let error = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(error),
            _ => None,
        });
        match error {
            Some(error) => Err(self.refused(error)),
            None => replies.pop().ok_or_else(|| self.nonsense().into()),
        }
    }

    /// Many commands in one flight. Errors are left among the replies.
    pub(super) fn ask_all(&mut self, mut commands: Vec<Cmd>) -> Result<Vec<Value>, Refusal> {
        let select = self.select();
        let ahead = select.len();
        commands.splice(0..0, select);
        let (mut replies, _) = self.exchange(&commands, self.io_timeout, None)?;
        match replies.first() {
            Some(Value::ServerError(error)) if ahead > 0 => Err(self.refused(error)),
            _ => Ok(replies.split_off(ahead)),
        }
    }

    /// Says so if it evicts keys rather than refuse writes when it is out of memory.
    pub(super) fn may_evict(&mut self) -> Option<String> {
        let memory = self.ask(redis::cmd("INFO").arg("memory").to_owned(), None).ok()?;
        let memory: String = redis::from_redis_value(memory).ok()?;
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
    fn exchange(
        &mut self,
        commands: &[Cmd],
        patience: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(Vec<Value>, bool), Refusal> {
        if let Some(mut connection) = self.connection.take() {
            match connection.exchange(commands, patience, interrupt) {
                Ok(replies) => {
                    self.connection = Some(connection);
                    return Ok((replies, false));
                }
                Err(Failure::Unreachable { fate: fate @ (Fate::Lost | Fate::NotSent), .. }) => {
                    let replies = self.exchange_anew(commands, patience, interrupt)?;
                    return Ok((replies, fate != Fate::NotSent));
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok((self.exchange_anew(commands, patience, interrupt)?, false))
    }

    fn exchange_anew(
        &mut self,
        commands: &[Cmd],
        patience: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<Value>, Refusal> {
        let (endpoint, tls) = (&self.address.endpoint, self.tls.as_ref());
        let mut connection = Connection::open(endpoint, tls, self.io_timeout, interrupt)?;
        let introduction = self.introduction();
        let mut flight = introduction.clone();
        flight.extend_from_slice(commands);
        let mut replies = connection.exchange(&flight, patience, interrupt)?;
        let rest = replies.split_off(introduction.len());
        for reply in &replies {
            if let Value::ServerError(error) = reply {
                let mut refused = self.refused(error);
                if let Refusal::Failed(Failure::Misconfigured { executed, .. }) = &mut refused {
                    *executed = !matches!(&rest[..], [Value::ServerError(_)]);
                }
                return Err(refused);
            }
        }
        match (self.question, replies.pop()) {
            (Some(Question::Role), Some(role)) if !is_master(&role) => {
                return Err(Refusal::Demoted { peer: self.address.to_string() });
            }
            (Some(Question::Uptime), Some(information)) => {
                self.run = Some(Run::of(&information).ok_or_else(|| self.nonsense())?);
            }
            _ => {}
        }
        self.connection = Some(connection);
        Ok(rest)
    }

    /// What a new connection has to say first.
    fn introduction(&self) -> Vec<Cmd> {
        let mut commands = Vec::new();
        if let Some(password) = &self.address.password {
            let mut auth = redis::cmd("AUTH");
            auth.arg(self.address.username.as_slice()).arg(password);
            commands.push(auth);
        }
        commands.extend(self.question.map(|question| match question {
            Question::Role => redis::cmd("ROLE"),
            Question::Uptime => redis::cmd("INFO").arg("server").to_owned(),
        }));
        commands
    }

    /// Goes ahead of a command that is not a script; those select their database themselves.
    fn select(&self) -> Vec<Cmd> {
        match self.address.database {
            0 => Vec::new(),
            database => vec![redis::cmd("SELECT").arg(database).to_owned()],
        }
    }

    pub(super) fn refused(&self, error: &redis::ServerError) -> Refusal {
        refusal::of(error, &self.address)
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
    pub(super) fn nonsense(&mut self) -> Failure {
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
pub(super) struct Run {
    /// No two servers have the same, whatever they are called.
    pub(super) id: String,
    /// Since when at least.
    pub(super) since: Instant,
}

impl Run {
    /// From INFO, where the uptime is in whole seconds.
    fn of(information: &Value) -> Option<Self> {
        let text = match information {
            Value::BulkString(text) => String::from_utf8_lossy(text),
            _ => return None,
        };
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let uptime = Duration::from_secs(field("uptime_in_seconds:")?.parse().ok()?);
        Some(Self { id: field("run_id:")?.to_owned(), since: Instant::now() - uptime })
    }
}
