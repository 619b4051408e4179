//! Locks on one Redis or Valkey server.

#[cfg(test)]
mod test_clock;

use std::time::Duration;

use redis::{Cmd, Value};

use super::address::Endpoint;
use super::connection::Connection;
use super::scripts::{self, Call, Script, mailbox};
use super::tls::Tls;
use super::{
    Address, Answer, Eviction, Failure, Fate, Interrupt, Listed, Release, Renewal, Request, Seen,
    Store, refusal, reply,
};
use crate::duration::Ttl;
use crate::lock::{Key, Name, Owner, Prefix, Token};
use crate::pattern::Pattern;
use crate::view::{State, View};

/// How many keys a step of SCAN looks at, and how many locks are inspected in one flight.
const STRIDE: usize = 1000;

/// How much longer than asked for a server may sleep: it looks at its clock ten times a second.
const TICK: Duration = Duration::from_millis(250);

/// One server. The connection is made when first needed, kept, and made again after a failure.
pub(super) struct Single {
    address: Address,
    tls: Option<Tls>,
    io_timeout: Duration,
    min_replicas: u32,
    connection: Option<Connection>,
    #[cfg(test)]
    test_clock: bool,
}

/// A reply, and whether the request may have been carried out once before this reply's request.
struct Reply {
    value: Value,
    repeated: bool,
    /// How many replicas had it in time, if that was asked.
    confirmed_by: Option<i64>,
}

impl Single {
    pub(super) fn new(
        address: Address,
        io_timeout: Duration,
        min_replicas: u32,
    ) -> Result<Self, String> {
        let tls = match (&address.endpoint, &address.tls) {
            (Endpoint::Tcp { host, .. }, Some(files)) => Some(Tls::prepare(host, files)?),
            _ => None,
        };
        Ok(Self {
            address,
            tls,
            io_timeout,
            min_replicas,
            connection: None,
            #[cfg(test)]
            test_clock: false,
        })
    }

    fn call(&self, script: Script, key: &Key, token: Option<&Token>) -> Call {
        #[cfg(test)]
        let script = if self.test_clock { script.on_a_test_clock() } else { script };
        Call::new(script, key, token, &self.address)
    }

    /// Runs a script. It travels as its hash, together with AUTH if the connection is new; a server
    /// that does not know it yet costs one more round trip.
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        self.run_with(&[], call, interrupt)
    }

    /// The same for what counts only once replicas have it. WAIT travels in the same flight, and is
    /// given a quarter of the time there is for an answer: a server looks at its clock ten times a
    /// second.
    fn run_confirmed(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        if self.min_replicas == 0 {
            return self.run(call, interrupt);
        }
        let patience = self.io_timeout / 4;
        let wait = redis::cmd("WAIT").arg(self.min_replicas).arg(patience.as_millis()).to_owned();
        self.run_with(&[wait], call, interrupt)
    }

    fn run_with(
        &mut self,
        wait: &[Cmd],
        call: &Call,
        interrupt: Interrupt<'_>,
    ) -> Result<Reply, Failure> {
        let flight = |command: Cmd| [&[command], wait].concat();
        let (mut replies, mut repeated) =
            self.exchange(&flight(call.by_hash()), self.io_timeout, interrupt)?;
        if matches!(&replies[..], [Value::ServerError(error), ..] if error.code() == "NOSCRIPT") {
            let again;
            (replies, again) =
                self.exchange(&flight(call.in_full()), self.io_timeout, interrupt)?;
            repeated |= again;
        }
        let confirmed = if wait.is_empty() { None } else { replies.pop() };
        let reply = replies.pop();
        let confirmed_by = match (confirmed, &reply) {
            // Refused anyhow; the script's own error tells more.
            (None, _) | (_, Some(Value::ServerError(_))) => None,
            (Some(Value::Int(replicas)), _) => Some(replicas),
            (Some(Value::ServerError(error)), _) => return Err(self.refused(&error)),
            (Some(_), _) => return Err(self.nonsense()),
        };
        match reply {
            Some(Value::ServerError(error)) => {
                Err(refusal::of_script(&error, &self.address.to_string(), call))
            }
            Some(value) => Ok(Reply { value, repeated, confirmed_by }),
            None => Err(self.nonsense()),
        }
    }

    /// One flight. A connection that had been idle may have been closed under us, so what fails on
    /// it is tried once more on a new one: all our scripts can be repeated. Says if that may have
    /// happened.
    fn exchange(
        &mut self,
        commands: &[Cmd],
        patience: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(Vec<Value>, bool), Failure> {
        if let Some(mut connection) = self.connection.take() {
            match connection.exchange(commands, patience, interrupt) {
                Ok(replies) => {
                    self.connection = Some(connection);
                    return Ok((replies, false));
                }
                Err(Failure::Unreachable { fate, .. }) => {
                    let replies = self.exchange_anew(commands, patience, interrupt)?;
                    return Ok((replies, fate != Fate::NotSent));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok((self.exchange_anew(commands, patience, interrupt)?, false))
    }

    fn exchange_anew(
        &mut self,
        commands: &[Cmd],
        patience: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<Value>, Failure> {
        let (endpoint, tls) = (&self.address.endpoint, self.tls.as_ref());
        let mut connection = Connection::open(endpoint, tls, self.io_timeout, interrupt)?;
        let introduction = self.introduction();
        let mut flight = introduction.clone();
        flight.extend_from_slice(commands);
        let mut replies = connection.exchange(&flight, patience, interrupt)?;
        let rest = replies.split_off(introduction.len());
        for reply in replies {
            if let Value::ServerError(error) = reply {
                let mut failure = self.refused(&error);
                if let Failure::Misconfigured { executed, .. } = &mut failure {
                    *executed = !matches!(&rest[..], [Value::ServerError(_)]);
                }
                return Err(failure);
            }
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
        commands
    }

    /// Goes ahead of a command that is not a script; those select their database themselves.
    fn select(&self) -> Vec<Cmd> {
        match self.address.database {
            0 => Vec::new(),
            database => vec![redis::cmd("SELECT").arg(database).to_owned()],
        }
    }

    fn refused(&self, error: &redis::ServerError) -> Failure {
        refusal::failure(error, &self.address.to_string())
    }

    /// An error if the server has it, but too few of its replicas.
    fn require_replicas(&self, confirmed_by: Option<i64>) -> Result<(), Failure> {
        let Self { address, min_replicas, .. } = self;
        match confirmed_by {
            Some(replicas) if replicas < i64::from(*min_replicas) => {
                Err(Failure::Unconfirmed(format!(
                    "{replicas} of {min_replicas} replicas of {address} have confirmed the lock in \
                     time; see its INFO replication"
                )))
            }
            _ => Ok(()),
        }
    }

    /// For a reply that is well-formed and means nothing to us.
    fn nonsense(&mut self) -> Failure {
        self.connection = None;
        Failure::Misconfigured {
            what: format!("{} answered something that no Redis or Valkey answers", self.address),
            executed: true,
        }
    }

    fn read<T>(&mut self, reply: Option<T>) -> Result<T, Failure> {
        reply.ok_or_else(|| self.nonsense())
    }
}

impl Store for Single {
    fn acquire(
        &mut self,
        request: &Request,
        seen: &[Seen],
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        let heartbeat = request.heartbeat.unwrap_or_default().as_millis();
        let mut call = self
            .call(scripts::ACQUIRE, &request.key, Some(&request.token))
            .with(request.ttl.as_millis())
            .with(heartbeat)
            .with(request.mode)
            .with(request.at_least.as_millis())
            .with(request.owner.as_ref().map_or("", Owner::as_str))
            .with(request.fresh_owner.as_str())
            .with(
                request
                    .enclosing
                    .iter()
                    .map(|token| format!("{} ", token.as_str()))
                    .collect::<String>(),
            )
            .with(if request.reentrant { "reentrant" } else { "" })
            .with(&request.about);
        for Seen { holder, left } in seen {
            call = call
                .with(&holder.id)
                .with(holder.mode)
                .with(holder.about.to_lines())
                .with(holder.fence)
                .with(holder.acquired.0)
                .with(left.as_millis());
        }
        let reply = self.run_confirmed(&call, interrupt)?;
        let answer = self.read(reply::answer(reply.value))?;
        if let Answer::Granted { .. } = answer {
            self.require_replicas(reply.confirmed_by)?;
        }
        Ok(answer)
    }

    fn sleep(
        &mut self,
        request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Failure> {
        // BLPOP takes 0 for "for ever", and Redis 6.2 rounds down: half a millisecond more makes
        // sure of the last one.
        let at_most = at_most.max(Duration::from_millis(1));
        let timeout = at_most + Duration::from_micros(500);
        let mut flight = self.select();
        flight.push(
            redis::cmd("BLPOP")
                .arg(mailbox(&request.key, request.token.as_str()))
                .arg(format!("{:.4}", timeout.as_secs_f64()))
                .to_owned(),
        );
        // Not repeated on a new connection: the message that a lost reply brought does not come
        // again, and asking will tell.
        let Some(mut connection) = self.connection.take() else { return Ok(()) };
        let patience = at_most + self.io_timeout + TICK;
        let replies = connection.exchange(&flight, patience, interrupt)?;
        self.connection = Some(connection);
        match replies.last() {
            Some(Value::ServerError(error)) => Err(self.refused(error)),
            // A message or the end of the time: either way the next thing is to ask again.
            _ => Ok(()),
        }
    }

    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Ttl,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure> {
        let call = self.call(scripts::RENEW, key, Some(token)).with(ttl.as_millis());
        let reply = self.run_confirmed(&call, interrupt)?;
        let renewal = self.read(reply::renewal(reply.value))?;
        if let Renewal::Renewed { .. } = renewal {
            self.require_replicas(reply.confirmed_by)?;
        }
        Ok(renewal)
    }

    fn release(&mut self, key: &Key, token: &Token) -> Result<Release, Failure> {
        let reply = self.run(&self.call(scripts::RELEASE, key, Some(token)), None)?;
        let release = self.read(reply::release(reply.value))?;
        Ok(match release {
            Release::NotHeld if reply.repeated => Release::Unknown,
            release => release,
        })
    }

    fn leave(&mut self, request: &Request) -> Result<View, Failure> {
        let call = self.call(scripts::LEAVE, &request.key, Some(&request.token));
        let reply = self.run(&call, None)?;
        self.read(reply::left(reply.value))
    }

    fn revoke(&mut self, key: &Key, eviction: Eviction) -> Result<View, Failure> {
        let call = self.call(scripts::REVOKE, key, None).with(match eviction {
            Eviction::WhenGone => "",
            Eviction::Now => "now",
        });
        let reply = self.run(&call, None)?;
        self.read(reply::revoked(reply.value))
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        let reply = self.run(&self.call(scripts::INSPECT, key, None), None)?;
        self.read(reply::view(reply.value))
    }

    fn list(&mut self, prefix: &Prefix, pattern: Option<&Pattern>) -> Result<Vec<Listed>, Failure> {
        let mut names = std::collections::BTreeSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let page = self.scan(prefix, &cursor)?;
            cursor = page.cursor;
            let matches = |name: &Name| pattern.is_none_or(|pattern| pattern.matches(name));
            names.extend(page.names.into_iter().filter(matches));
            if cursor == b"0" {
                break;
            }
        }
        let names: Vec<Name> = names.into_iter().collect();
        let mut locks = Vec::new();
        for names in names.chunks(STRIDE) {
            let views = self.inspect_all(prefix, names)?;
            locks.extend(names.iter().cloned().zip(views));
        }
        locks.retain(|(_, view)| view.as_ref().map_or(true, |view| view.state != State::Free));
        Ok(locks)
    }
}

struct Page {
    cursor: Vec<u8>,
    names: Vec<Name>,
}

impl Single {
    /// Locks that are held have a guard, and a guard is the only string we keep.
    fn scan(&mut self, prefix: &Prefix, cursor: &[u8]) -> Result<Page, Failure> {
        let mut flight = self.select();
        let scan = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{}*", prefix.as_str()))
            .arg("COUNT")
            .arg(STRIDE)
            .arg("TYPE")
            .arg("string")
            .to_owned();
        flight.push(scan);
        let (mut replies, _) = self.exchange(&flight, self.io_timeout, None)?;
        if let Some(Value::ServerError(error)) =
            replies.iter().find(|reply| matches!(reply, Value::ServerError(_)))
        {
            return Err(self.refused(error));
        }
        let page: Option<(Vec<u8>, Vec<Vec<u8>>)> =
            replies.pop().and_then(|page| redis::from_redis_value(page).ok());
        let (cursor, keys) = self.read(page)?;
        let name =
            |key: Vec<u8>| String::from_utf8(key).ok()?.strip_prefix(prefix.as_str())?.parse().ok();
        Ok(Page { cursor, names: keys.into_iter().filter_map(name).collect() })
    }

    fn inspect_all(
        &mut self,
        prefix: &Prefix,
        names: &[Name],
    ) -> Result<Vec<Result<View, Failure>>, Failure> {
        // The first one by itself, so that the server surely has the script for the rest.
        let Some((first, rest)) = names.split_first() else { return Ok(Vec::new()) };
        let mut views = vec![self.inspect(&Key::new(prefix, first))];
        let calls: Vec<Cmd> = rest
            .iter()
            .map(|name| self.call(scripts::INSPECT, &Key::new(prefix, name), None).by_hash())
            .collect();
        let (replies, _) = self.exchange(&calls, self.io_timeout, None)?;
        for reply in replies {
            views.push(match reply {
                Value::ServerError(error) => Err(self.refused(&error)),
                value => self.read(reply::view(value)),
            });
        }
        Ok(views)
    }
}
