//! What only a member of a quorum is asked.

use std::ops::ControlFlow::Break;
use std::time::Duration;

use super::reply;
use crate::rules::quorum::{Nomination, QuorumOp, Vote};
use crate::rules::servers::Run;
use crate::rules::{Answer, Failure, Key, Outcome, Request, Ticket, Token, Verdict};
use crate::store::NEVER;
use crate::store::server::topology::Topology;
use crate::store::server::{Node, RedisStore, scripts};
use crate::store::wire::Value;

/// The key of the mark of a promoted server, beside all locks with a prefix.
pub(in crate::store) const PROMOTED: &str = "promoted";

/// The locks on one member.
pub(super) type MemberStore = RedisStore<Node>;

impl<T: Topology> RedisStore<T> {
    /// Asks for a position in the queue, or for a hold. A grant counts once enough replicas have
    /// confirmed it.
    pub fn vote(&mut self, request: &Request, op: QuorumOp, attempt: u64) -> Result<Vote, Failure> {
        let number = |ticket: Option<Ticket>| ticket.map_or(0, |ticket| ticket.0).to_string();
        let (ticket, held) = match op {
            QuorumOp::Propose(ticket) => (number(ticket), None),
            QuorumOp::Commit(ticket, held) => (number(ticket), Some(held)),
            QuorumOp::Restore(held) => (String::new(), Some(held)),
        };
        let script = if held.is_some() { scripts::COMMIT } else { scripts::PROPOSE };
        let mut call = self.asking_call(script, request, attempt).with(ticket);
        if let Some((fence, slot)) = held {
            let slot = slot.map_or(String::new(), |slot| slot.to_string());
            call = call.with(fence).with(slot).confirmed_by(self.min_replicas);
        }
        let reply = self.run(&call, reply::vote, NEVER)?;
        reply.confirmed(|vote| matches!(vote, Break(Verdict::Answer(Answer::Granted { .. }))))
    }

    /// Sends a release without awaiting the reply: behind an unanswered request, if there is one.
    pub(super) fn post_release(&mut self, key: &Key, token: &Token, outcome: Outcome) {
        // What cannot be sent lapses with the lease.
        let _ = self.topology.run(&self.release_call(key, token, outcome).no_reply(), NEVER);
    }

    /// Sleeps like `Store::sleep`. Returns the nomination, if that ended the sleep.
    pub(super) fn hear_nomination(
        &mut self,
        request: &Request,
        at_most: Duration,
    ) -> Result<Option<Nomination>, Failure> {
        Ok(match self.hear(request, at_most, NEVER)? {
            Some(Value::BulkString(text)) => reply::nomination(&text),
            _ => None,
        })
    }
}

impl MemberStore {
    /// The run of the server that answered last, since it started or was promoted. A member that
    /// was promoted and cannot be marked cannot vote.
    pub(super) fn voting_run(&mut self, key: &Key) -> Result<Option<Run>, Failure> {
        self.topology.run_as_master(&key.shared(PROMOTED))
    }
}
