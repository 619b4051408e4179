//! What a member of a quorum is asked, and what it answers: the words that the model and the quorum
//! have in common.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::rules::{Answer, Failure, Fence, ServerTime, Slot, Ticket, Verdict, View};

/// What a request asks of one of several servers, none of which grants the lock by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuorumOp {
    /// A position in the queue: with the ticket on which the servers agreed, or with the one that
    /// the server proposes.
    Propose(Option<Ticket>),
    /// This hold, if the server nominates the request and the slot is free there. It gets a larger
    /// fencing token if the server has granted this one already. The ticket is that of `Propose`.
    Commit(Option<Ticket>, Held),
    /// A hold that the server has lost, while enough others have it.
    Restore(Held),
}

/// A hold, as several servers have it in common: its fencing token, and the number of its slot, if
/// the lock has slots.
pub type Held = (Fence, Option<Slot>);

/// The position of a request in the queue of one of several servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    pub view: View,
    /// From 1.
    pub position: u64,
    /// Ask this server again after this time, to keep the position.
    pub sleep: Duration,
    pub ticket: Ticket,
    /// If the server nominates the request, which may then commit.
    pub nominated: Option<Nomination>,
    /// Whether older requests with agreed tickets keep it out. Only for a request that does not
    /// wait.
    pub kept_out: bool,
}

/// What one of several servers tells a request that it nominates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nomination {
    /// The fencing token that the server would give.
    pub fence: Fence,
    /// The position in the queue, from 1. All before it are nominated too.
    pub position: u64,
    /// The numbers of the slots that are taken there, in order.
    pub taken: Vec<Slot>,
}

/// What is sent to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberRequest {
    Ask(QuorumOp),
    /// Wait for a message, up to this long.
    Listen(Duration),
}

/// What a member replied.
#[derive(Clone, Debug, Hash)]
pub enum MemberAnswer {
    Proposed(Proposal),
    Answer(Answer),
    /// A ticket or fencing token is implausible: it is this far ahead of the member's clock, which
    /// shows this time.
    AheadOfClock(Duration, ServerTime),
    /// A message, if the member nominates the request. `None` for any other message, or if the time
    /// has passed.
    Heard(Option<Nomination>),
    Failed(Failure),
}

/// What a member answers to a `QuorumOp`: a proposal, to continue with, or a verdict.
pub type Vote = ControlFlow<Verdict, Proposal>;
