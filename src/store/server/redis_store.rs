//! The store that runs the scripts in `lua/`, on any topology of servers.

use std::time::Duration;

use super::node::Reply;
use super::reply;
use super::scripts::{self, Call, Question, Script, mailbox};
use super::topology::Topology;
use super::{facts, list};
use crate::report::Diagnostic;
use crate::rules::model::lock::MAX_LISTED;
use crate::rules::waiter::pause_of_a_head;
use crate::rules::{
    Answer, Asked, Failure, FailureKind, Fence, Id, Instant, Key, Listing, Name, Operator, Outcome,
    Owner, Prefix, Release, Removal, Renewal, Repeatable, Request, Revocation, Seen, Stored,
    Ticket, Token, Ttl, Verdict, View,
};
use crate::store::wire::{self, Cmd, Value};
use crate::store::{
    Filter, Force, Interrupt, NEVER, PATIENCE, Store, attempt_number, decided, until_decided,
};

/// A store that runs the scripts on the servers of a topology. A grant or a renewal counts once
/// `min_replicas` replicas have confirmed it.
pub struct RedisStore<T> {
    pub topology: T,
    /// The number of the database that the locks are in.
    database: u32,
    pub(in crate::store) min_replicas: u32,
    /// The lock as it was when this process first asked to revoke its holds.
    revoking: Option<View>,
}

impl<T: Topology> RedisStore<T> {
    /// `min_replicas` may be 0.
    pub fn new(topology: T, database: u32, min_replicas: u32) -> Self {
        Self { topology, database, min_replicas, revoking: None }
    }

    fn call(&self, script: Script, key: &Key, token: Option<&Token>) -> Call {
        Call::new(script, key, token, self.database)
    }

    /// How long a request that needs several calls may take.
    pub(in crate::store) fn patience(&mut self) -> Duration {
        PATIENCE * self.topology.io_timeout()
    }

    /// Runs a script and parses its reply.
    pub(in crate::store) fn run<R>(
        &mut self,
        call: &Call,
        read: impl FnOnce(Value) -> Option<R>,
        interrupt: Interrupt<'_>,
    ) -> Result<Reply<R>, Failure> {
        let reply = self.topology.run(call, interrupt)?;
        self.parsed(reply, read)
    }

    fn parsed<R>(
        &mut self,
        reply: Reply,
        read: impl FnOnce(Value) -> Option<R>,
    ) -> Result<Reply<R>, Failure> {
        let Reply { value, repeated, unconfirmed } = reply;
        match read(value) {
            Some(value) => Ok(Reply { value, repeated, unconfirmed }),
            None => Err(self.topology.last().unexpected_reply()),
        }
    }

    pub fn ask(
        &mut self,
        request: &Request,
        attempt: u64,
        interrupt: Interrupt<'_>,
    ) -> Result<Verdict, Failure> {
        let call = self.acquire_call(request, attempt);
        // What does not wait would never hear of its position in the queue again. A faulty server
        // might queue it all the same.
        let waits = request.heartbeat.is_some();
        let is_possible =
            |it: &Verdict| waits || !matches!(it, Verdict::Answer(Answer::Queued { .. }));
        let verdict = |reply| reply::verdict(reply).filter(is_possible);
        self.run(&call, verdict, interrupt)?.confirmed(is_granted)
    }

    fn acquire_call(&self, request: &Request, attempt: u64) -> Call {
        let mut call = self.asking_call(scripts::ACQUIRE, request, attempt);
        call = call.confirmed_by(self.min_replicas);
        match &request.seen {
            None => call.with(""),
            Some(Seen { generation, fence, left, ids }) => {
                call.with(generation).with(fence).with(left.as_millis()).with(ids.join(" "))
            }
        }
    }

    /// A call of a script with the arguments of `lua/asking.lua`.
    pub(in crate::store) fn asking_call(
        &self,
        script: Script,
        request: &Request,
        attempt: u64,
    ) -> Call {
        let fields = asking_fields(request, attempt).map(|(_, field)| field);
        self.call(script, &request.key, Some(&request.token)).with_all(fields)
    }

    /// The lock with one page of its holders and waiters.
    fn page(
        &mut self,
        key: &Key,
        history: &str,
        from: u64,
        questions: &'static [Question],
    ) -> Result<View, Failure> {
        let call = self.call(scripts::INSPECT, key, None).with(history).with(from);
        Ok(self.run(&call.asking(questions), reply::page, NEVER)?.value)
    }

    /// Reads page by page, up to 1,000 holders and 1,000 waiters. More would keep the server busy
    /// for a list that is too long to read.
    fn pages(&mut self, key: &Key, questions: &'static [Question]) -> Result<View, Failure> {
        const MOST: u64 = 1_000;
        let mut view = self.page(key, "history", 0, questions)?;
        for from in (0..MOST).step_by(MAX_LISTED).skip(1) {
            if view.unlisted_holders == 0 && view.unlisted_waiters == 0 {
                break;
            }
            let page = self.page(key, "", from, &[])?;
            for unlisted in [&mut view.unlisted_holders, &mut view.unlisted_waiters] {
                *unlisted = unlisted.saturating_sub(MAX_LISTED as u64);
            }
            view.holders.extend(page.holders);
            view.waiters.extend(page.waiters);
        }
        Ok(view)
    }

    pub(in crate::store) fn release_call(
        &self,
        key: &Key,
        token: &Token,
        outcome: Outcome,
    ) -> Call {
        self.call(scripts::RELEASE, key, Some(token)).with(outcome)
    }

    fn leave_call(&self, request: &Request) -> Call {
        let call = self.call(scripts::LEAVE, &request.key, Some(&request.token));
        call.with(request.ttl.as_millis()).with(if request.is_skipped { "busy" } else { "" })
    }

    /// Revokes all holds with a fencing token up to this one, or none. Returns the lock as it was before,
    /// and whether an earlier copy of the request may have been executed too.
    pub fn revoke_up_to(
        &mut self,
        key: &Key,
        up_to: Option<Fence>,
        revocation: Revocation,
        by: &Operator,
    ) -> Result<(View, bool), Failure> {
        let now = if revocation == Revocation::Now { "now" } else { "" };
        let (mut first, mut from, mut is_repeated) = (None, String::new(), false);
        let view = until_decided(self.patience(), || {
            let call = self.call(scripts::REVOKE, key, None).with(now).with(by.to_stored());
            let call = call.with(&from).with(up_to.unwrap_or_default());
            let reply = self.run(&call, reply::revoked, NEVER)?;
            let (before, again) = reply.value;
            is_repeated |= reply.repeated;
            first = first.take().or(before);
            match again.filter(|_| up_to.is_some() || first.is_none()) {
                Some(next) => from = next.to_string(),
                None if first.is_none() => return Err(self.topology.last().unexpected_reply()),
                None => return Ok(first.take()),
            }
            Ok(None)
        })?;
        Ok((if let Some(up_to) = up_to { view.up_to(up_to) } else { view }, is_repeated))
    }

    /// Sleeps like `Store::sleep`, and returns the message that ended the sleep.
    pub(in crate::store) fn hear(
        &mut self,
        request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Value>, Failure> {
        let (node, listen) = (self.topology.last(), listen(request, at_most));
        Ok(match node.sleep(listen, None, at_most, interrupt)?.0 {
            Value::Array(reply) => reply.into_iter().nth(1),
            _ => None,
        })
    }
}

/// What a script is told of a request, by the names and in the order of `lua/asking.lua`. There,
/// the client is `about`.
fn asking_fields(request: &Request, attempt: u64) -> [(&'static str, String); 12] {
    let heartbeat = request.heartbeat.unwrap_or_default().as_millis();
    let flag = |name: &str, is_set| if is_set { name.to_owned() } else { String::new() };
    let arrival = request.arrival.unwrap_or(Ticket(0)).0.to_string();
    let enclosing = request.enclosing.iter().map(|token| format!("{} ", token.as_str()));
    [
        ("ttl", request.ttl.as_millis().to_string()),
        ("heartbeat", heartbeat.to_string()),
        ("mode", request.mode.to_string()),
        ("at_least", request.at_least.as_millis().to_string()),
        ("owner", request.owner.as_ref().map_or("", Owner::as_str).to_owned()),
        ("fresh_owner", request.fresh_owner.as_str().to_owned()),
        ("enclosing", enclosing.collect()),
        ("reentrant", flag("reentrant", request.reentrant)),
        ("about", request.client.to_stored()),
        ("attempt", attempt.to_string()),
        ("next", flag("next", request.next)),
        ("arrival", if request.supersedes { arrival } else { String::new() }),
    ]
}

fn is_granted(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Answer(Answer::Granted { .. }))
}

/// The command that waits for a message to the waiter.
fn listen(request: &Request, at_most: Duration) -> Cmd {
    // A timeout of 0 makes BLPOP block forever, and Redis 6.2 rounds down to milliseconds. Half a
    // millisecond more keeps it from waking the last one too early.
    let timeout = at_most.max(Duration::from_millis(1)) + Duration::from_micros(500);
    wire::cmd("BLPOP")
        .arg(mailbox(&request.key, request.token.as_str()))
        .arg(format!("{:.4}", timeout.as_secs_f64()))
        .to_owned()
}

impl<T: Topology> Store for RedisStore<T> {
    fn acquire(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<Answer, Failure> {
        decided(self.patience(), |attempt| self.ask(request, attempt, interrupt))
    }

    fn sleep(
        &mut self,
        request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Asked>, Failure> {
        let message = self.hear(request, at_most, interrupt)?;
        let is_head = matches!(message, Some(Value::BulkString(text)) if text == b"head");
        let Some(pause) = pause_of_a_head(is_head, at_most) else { return Ok(None) };
        // The request follows BLPOP in the same flight. If the grant comes first, the request
        // claims it without a round trip. Only after a short sleep: a request behind a long BLPOP
        // would take the lock even if this client had died meanwhile.
        let (listen, sent) = (listen(request, pause), Instant::now());
        let call = self.acquire_call(request, attempt_number());
        let reply = match self.topology.last().sleep(listen, Some(&call), pause, interrupt)?.1 {
            Some(reply) => self.parsed(reply, reply::verdict)?,
            None => return Ok(None),
        };
        Ok(match reply.confirmed(is_granted)? {
            Verdict::Answer(answer) => Some(Asked { sent, answer }),
            // The waiter asks again, and then this is decided.
            Verdict::Again | Verdict::AheadOfClock { .. } => None,
        })
    }

    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Option<Ttl>,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure> {
        let ttl = ttl.map_or(String::new(), |ttl| ttl.as_millis().to_string());
        let call = self.call(scripts::RENEW, key, Some(token)).with(ttl);
        let call = call.confirmed_by(self.min_replicas);
        let reply = self.run(&call, reply::renewal, interrupt)?;
        match (&reply.value, reply.unconfirmed) {
            (Renewal::Renewed { left, before, .. }, Some(failure)) => {
                // After a copy that was lost, `before` tells of that one.
                let left = (!reply.repeated).then_some(*left.min(before));
                Err(Failure { kind: FailureKind::Unconfirmed { left }, ..failure })
            }
            _ => Ok(reply.value),
        }
    }

    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure> {
        let call = self.release_call(key, token, outcome);
        let reply = self.run(&call, reply::release, NEVER)?;
        Ok(if reply.repeated { reply.value.after_a_lost_reply() } else { reply.value })
    }

    fn withdraw(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<(), Failure> {
        let call = self.leave_call(request);
        self.run(&call, reply::left, interrupt).map(|_| ())
    }

    /// Behind an unanswered request, if there is one. What cannot be sent lapses.
    fn withdraw_blind(&mut self, request: &Request) {
        let _ = self.topology.run(&self.leave_call(request).no_reply(), NEVER);
    }

    fn revoke(&mut self, key: &Key, force: &Force) -> Result<View, Failure> {
        // Revoke only grants up to the fencing token that the first call has found, so that neither
        // a request that arrives late nor a repetition affects later grants.
        let Force { how, by } = force;
        let (before_all, repeats) = match &self.revoking {
            Some(before_all) => (before_all.clone(), true),
            // This revokes nothing, but unlike an inspection, only a master answers it.
            None => (self.revoke_up_to(key, None, Revocation::Graceful, by)?.0, false),
        };
        self.revoking = Some(before_all.clone());
        let up_to = before_all.fence.unwrap_or_default();
        let (mut before, is_repeated) = self.revoke_up_to(key, Some(up_to), *how, by)?;
        if repeats || is_repeated {
            let history = self.page(key, "history", 0, &[])?.history;
            before.add_revoked_earlier(before_all.holders, &history);
        }
        Ok(before)
    }

    fn remove(&mut self, key: &Key, id: &Id, force: &Force) -> Result<Removal, Failure> {
        let now = if force.how == Revocation::Now { "now" } else { "" };
        let mut from = "0 ".to_owned();
        until_decided(self.patience(), || {
            let call = self.call(scripts::REMOVE, key, None).with(now).with(force.by.to_stored());
            let reply = self.run(&call.with(id).with(&from), reply::removal, NEVER)?;
            Ok(match reply.value {
                Ok(removal) if reply.repeated => Some(removal.after_a_lost_reply()),
                Ok(removal) => Some(removal),
                Err(next) => {
                    from = next;
                    None
                }
            })
        })
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        self.pages(key, &[])
    }

    fn inspect_verified(&mut self, key: &Key, before_hazards: bool) -> Result<View, Failure> {
        const QUESTIONS: &[Question] = &[Question::MasterLink, Question::Memory];
        self.pages(key, if before_hazards { QUESTIONS } else { &QUESTIONS[..1] })
    }

    fn list(&mut self, filter: &Filter) -> Result<Listing, Failure> {
        list::list(&mut self.topology, self.database, filter)
    }

    fn names(&mut self, prefix: &Prefix, until: Instant) -> Vec<Name> {
        list::names_until(self.topology.last(), prefix, until)
    }

    /// Names the servers that evict keys when their memory is full.
    fn hazards(&mut self) -> Vec<String> {
        let masters = self.topology.masters().unwrap_or_default();
        masters.into_iter().filter_map(facts::eviction).collect()
    }

    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        self.topology.take_diagnostics()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_script_names_what_a_request_tells_it() {
        let header = include_str!("../../../lua/asking.lua");
        let named = header.lines().filter_map(|line| line.strip_prefix("-- ARGV["));
        let named = named.filter_map(|line| line.split("] ").nth(1)?.split_whitespace().next());
        let named: Vec<&str> = named.collect();
        let key = Key::new(&Prefix::default(), &"L".parse().unwrap());
        let (token, owner) = (Token::new([0; 16]), Owner::new([0; 16]));
        let request = Request::plain(key, token, owner, Ttl::DEFAULT);
        assert_eq!(asking_fields(&request, 1).map(|(name, _)| name), *named);
    }
}
