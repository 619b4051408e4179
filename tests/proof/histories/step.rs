//! What can happen in a history.

use std::time::Duration;

use rlock::rules::quorum::QuorumOp;
use rlock::rules::{
    ClientInfo, Fence, HoldKind, Key, Label, Mode, Outcome, Owner, Request, Revocation, Slot,
    Ticket, Token,
};

use crate::values;

/// How many clients take part at most.
pub(super) const CLIENTS: u8 = 20;

/// What happens next. Numbers stand for clients and owners.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Ask(Ask),
    Renew(u8, Option<u64>),
    Release(u8, Outcome),
    /// Gives up its request, because the lock is busy or not.
    Leave(u8, bool),
    /// Gives up a request before that request arrives: the token is not known yet.
    LeaveEarly(u8),
    /// The request was under way when the client released its lock, or gave up its request.
    Late(Box<Step>),
    /// How many of the latest holds the caller has not seen; if late, it has seen the largest fence of
    /// all, also one that the server has lost.
    Revoke(Revocation, u8),
    /// Takes a client out of the lock; if late, one that has released it.
    Remove(u8, Revocation),
    Pass(u64),
    /// To the end of the lease of the first, second ... hold, or of the presumed life of a waiter,
    /// and one millisecond more or not.
    PassTo(u8, bool),
    /// Another tool puts a hash in place of this side key. The rest of the history is not played by
    /// the model, unless the server loses all its data.
    Occupy(&'static str),
    /// Another tool sets this field of the state. The same applies.
    Set(&'static str, &'static str),
    /// The memory of the server is full during this step. The same applies if that needs memory.
    InFullMemory(Box<Step>),
    /// Another tool writes the key, with or without an expiry.
    Write(Option<u64>),
    /// Another tool deletes the key.
    Delete,
    /// This side key is lost, as if it had been evicted; the state together with the guard and the
    /// queue, and the next request may remind the server of a holder.
    Lose(&'static str),
    /// Another tool overwrites the end of a client's hold.
    Overwrite(u8, u64),
    /// The server loses all its data, and its clock is set back by so many milliseconds.
    Forget(u64),
    /// From now on, the replica of the server lags.
    Lag,
    /// The replica takes over: the server goes back to what it had when the replica began to lag.
    GoBack,
}

impl Step {
    /// Whether it succeeds while the memory of the server is full.
    pub(super) fn needs_no_memory(&self) -> bool {
        use Step::*;
        match self {
            Late(step) => step.needs_no_memory(),
            Renew(..) | Release(..) | Leave(..) | LeaveEarly(_) | Revoke(..) | Remove(..) => true,
            _ => false,
        }
    }

    /// Whether a client calls the server, and nothing else happens.
    pub(super) fn is_call(&self) -> bool {
        use Step::*;
        let is_other = matches!(self, Write(_) | Delete | Overwrite(..) | Lose(_) | Pass(_));
        !(is_other || matches!(self, PassTo(..) | Forget(_) | Lag | GoBack))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ask {
    pub(super) client: u8,
    pub(super) mode: Mode,
    pub(super) ttl: u64,
    pub(super) at_least: u64,
    pub(super) heartbeat: Option<u64>,
    pub(super) owner: Option<u8>,
    pub(super) enclosing: Vec<u8>,
    pub(super) reentrant: bool,
    pub(super) next: bool,
    pub(super) supersedes: bool,
    /// How many milliseconds the ticket of one that supersedes is ahead of the clock.
    pub(super) arrival: Option<i64>,
    /// How many milliseconds the wanted fence is ahead of the clock, and the number of the wanted
    /// slot.
    pub(super) held: Option<(i64, Option<Slot>)>,
    /// Whether this is one of several servers; and how many milliseconds the agreed ticket is ahead
    /// of the clock, if there is one.
    pub(super) ticket: Option<Option<i64>>,
    /// If it reminds the server of the holders in the last reply to its client, for how many
    /// milliseconds their leases may last.
    pub(super) reminds: Option<u64>,
    /// How many later requests of this client were sent first: it is a duplicate, or was overtaken.
    pub(super) overtaken: u64,
    pub(super) kind: HoldKind,
}

/// An exclusive request that does not wait.
pub(super) fn plain_ask() -> Ask {
    Ask { ttl: 100, kind: HoldKind::Exec, ..Ask::default() }
}

impl Ask {
    /// The request with this token.
    pub(super) fn request(&self, key: &Key, token: Token, tokens: &Tokens, now: u64) -> Request {
        let owner = |owner: u8| format!("owner-{owner}").parse::<Owner>().unwrap();
        let client = ClientInfo {
            pid: u32::from(self.client),
            kind: self.kind,
            label: Some("label".parse::<Label>().unwrap()),
            ..ClientInfo::default()
        };
        // Its last characters must be unique, like those of a random one.
        let fresh_owner = format!("fresh-{}", token.id()).parse().unwrap();
        Request {
            mode: self.mode,
            at_least: Duration::from_millis(self.at_least),
            heartbeat: self.heartbeat.map(Duration::from_millis),
            owner: self.owner.map(owner),
            enclosing: self.enclosing.iter().map(|client| tokens.present(*client)).collect(),
            reentrant: self.reentrant,
            next: self.next,
            supersedes: self.supersedes,
            arrival: self.arrival.map(|ahead| Ticket(micros(now, ahead))),
            client,
            ..Request::plain(key.clone(), token, fresh_owner, values::ttl(self.ttl))
        }
    }

    /// What one of several servers is asked; `None` if it is the only one.
    pub(super) fn quorum_op(&self, now: u64) -> Option<QuorumOp> {
        let held = self.held.map(|(ahead, slot)| (Fence(micros(now, ahead)), slot));
        let ticket = self.ticket.map(|ticket| ticket.map(|ahead| Ticket(micros(now, ahead))));
        match (ticket, held) {
            (Some(ticket), Some(held)) => Some(QuorumOp::Commit(ticket, held)),
            (Some(ticket), None) => Some(QuorumOp::Propose(ticket)),
            (None, Some(held)) => Some(QuorumOp::Restore(held)),
            (None, None) => None,
        }
    }
}

fn micros(now: u64, ahead: i64) -> u64 {
    (now * 1_000).saturating_add_signed(ahead * 1_000)
}

/// The present token of each client, which uses a new one after each release.
#[derive(Default)]
pub(super) struct Tokens([u16; CLIENTS as usize]);

impl Tokens {
    pub(super) fn present(&self, client: u8) -> Token {
        Self::name(client, self.0[usize::from(client)])
    }

    pub(super) fn former(&self, client: u8) -> Token {
        Self::name(client, self.0[usize::from(client)].saturating_sub(1))
    }

    fn name(client: u8, number: u16) -> Token {
        format!("{client:02x}{number:06}-0000-4000-8000-000000000000").parse().unwrap()
    }

    pub(super) fn used_up(&mut self, client: u8) {
        self.0[usize::from(client)] += 1;
    }
}
