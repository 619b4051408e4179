//! One of several servers, a member of a quorum: it grants nothing by itself. A client proposes
//! itself to each, and commits where it is nominated.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use super::lock::{CLAIM_WINDOW, Origin, QueueEntry};
use super::transaction::Transaction;
use crate::rules::{Mode, Proposal, QuorumOp, Request, Ticket, Verdict, Vote, millis};

/// The position of a request in the queue.
pub struct QueuePosition {
    position: u64,
    ticket: u64,
    head: Option<QueueEntry>,
    nominated: usize,
}

impl Transaction<'_> {
    /// What a member is asked: `attempt` grows each time.
    pub fn vote(&mut self, request: &Request, op: QuorumOp, attempt: u64) -> Vote {
        let number = |ticket: Option<Ticket>| ticket.map_or(0, |ticket| ticket.0);
        match op {
            QuorumOp::Propose(ticket) => self.propose(request, attempt, number(ticket)),
            QuorumOp::Commit(ticket, held) => {
                self.commit(request, attempt, Some(number(ticket)), held)
            }
            QuorumOp::Restore(held) => self.commit(request, attempt, None, held),
        }
    }

    /// As `early_reply`; also ends any copy, and a request whose ticket or `wanted` fence is
    /// implausible.
    pub(super) fn early_member_reply(
        &mut self,
        token: &str,
        attempt: u64,
        ticket: Option<u64>,
        wanted: Option<u64>,
    ) -> ControlFlow<Verdict> {
        self.early_reply(token, attempt)?;
        // Two URLs of a quorum may lead to the same server. Another attempt would undo what the
        // later request has done.
        if self.is_copy(token, attempt) {
            return Break(self.busy());
        }
        let tickets = ticket.map_or(0, |ticket| ticket.max(self.lock.ticket));
        self.check_ahead(self.lock.fence.max(wanted.unwrap_or(0)).max(tickets))
    }

    /// Whether older waiters whose tickets the servers agreed on keep a waiter out. A ticket that
    /// is only proposed may still become a younger one.
    fn is_kept_out(&self, position: u64, mode: Mode) -> bool {
        let older = self.lock.queue.iter().take((position as usize - 1).min(self.batch));
        let agreed = older.filter(|it| it.origin == Origin::Agreed && it.is_alive(self.now));
        let modes: Vec<Mode> = agreed.map(|waiter| waiter.mode).collect();
        !modes.is_empty() && !self.admissible(mode, &modes)
    }

    /// Gives the caller a position in the queue, even if it does not wait: then for the claim
    /// window.
    pub fn join(
        &mut self,
        request: &Request,
        waiter: QueueEntry,
        ticket: u64,
    ) -> ControlFlow<Verdict, QueuePosition> {
        let token = request.token.as_str();
        let (position, ticket) = self.enqueue(request, waiter, Some(ticket));
        let (head, nominated) = self.admit(token);
        if self.cleanup_pending {
            return Break(Verdict::Again);
        }
        // The reply says what a message would say.
        self.lock.mail.retain(|mail| mail.token != token);
        let position = self.position(token).map_or(position, |index| index as u64 + 1);
        Continue(QueuePosition { position, ticket, head, nominated })
    }

    /// The answer to a caller at this position, if it is nominated and if not.
    pub fn proposed(&self, request: &Request, at: &QueuePosition, is_nominated: bool) -> Proposal {
        let heartbeat = request.heartbeat.map_or(CLAIM_WINDOW, millis);
        let turn = at.position.saturating_sub(at.nominated as u64);
        let mode = at.head.as_ref().map_or(request.mode, |head| head.mode);
        let (sleep, nominated) = match is_nominated {
            true => (CLAIM_WINDOW / 2, Some(self.nomination(at.position))),
            false => (self.millis_to_sleep(heartbeat, turn, mode), None),
        };
        let kept_out = !is_nominated
            && request.heartbeat.is_none()
            && self.is_kept_out(at.position, request.mode);
        Proposal {
            view: self.brief_view(),
            position: at.position,
            sleep: Duration::from_millis(sleep),
            ticket: Ticket(at.ticket),
            nominated,
            kept_out,
        }
    }
}
