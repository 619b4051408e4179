//! Everything that decides: names, leases, the lock model, the waiter, the supervisor, the quorum.
//!
//! Values in, values out: nothing here knows a clock, a file, a socket or a thread. The drivers are
//! `store`, `wait` and `supervise`.

pub(crate) mod back_off;
pub(crate) mod duration;
pub(crate) mod failure;
pub(crate) mod instant;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod loss;
pub(crate) mod model;
pub(crate) mod policy;
pub(crate) mod quorum;
pub(crate) mod renewals;
pub(crate) mod request;
pub(crate) mod retries;
pub(crate) mod supervisor;
pub(crate) mod user_message;
pub(crate) mod waiter;

pub(crate) use back_off::BackOff;
pub(crate) use duration::{BoundedDuration, Timeout, Ttl, is_duration, millis, show};
pub(crate) use failure::{Delivery, Failure};
pub(crate) use instant::Instant;
pub(crate) use lease::Lease;
pub(crate) use lock::pattern::{Pattern, Subject};
pub(crate) use lock::view::{
    Ending, HoldState, Holder, Operator, Reason, ServerTime, State, View, Waiter,
};
pub(crate) use lock::{
    ClientInfo, EnclosingHolds, Fence, HistoryEntry, Id, Key, Kind, Label, Mode, Name, Outcome,
    Owner, Prefix, ProcessId, Slot, Token,
};
pub(crate) use loss::LockOutcome;
pub(crate) use policy::{Group, LossPolicy, OnLost, OnUnreachable, Order, WaitLimit};
pub(crate) use request::{
    Answer, Asked, Listed, Listing, Proposal, QuorumOp, Release, Removal, Renewal, Repeatable,
    Request, Revocation, Seen, Ticket, Verdict,
};
pub(crate) use retries::{Attempts, Next};
pub(crate) use user_message::UserMessage;
