//! Everything that decides: names, leases, the lock model, the waiter, the supervisor, the quorum.
//!
//! Values in, values out: nothing here knows a clock, a file, a socket or a thread. The drivers are
//! `store`, `wait` and `supervise`.

mod ask;
mod back_off;
mod duration;
mod failure;
mod instant;
mod lateness;
pub(crate) mod lease;
mod lock;
pub(crate) mod loss;
pub mod model;
mod policy;
pub mod quorum;
mod reminders;
pub mod renewals;
pub(crate) mod request;
mod retries;
mod server_time;
pub mod servers;
mod standing;
pub mod supervisor;
mod system_call;
mod user_message;
pub mod waiter;

pub use ask::{Held, Nomination, Proposal, QuorumOp, Vote};
pub(crate) use back_off::BackOff;
pub use duration::{BoundedDuration, Timeout, Ttl, millis, show};
pub(crate) use duration::{is_duration, show_up};
pub use failure::{Delivery, Failure, FailureKind};
pub use instant::Instant;
pub use lateness::{Lateness, NotRunning};
pub use lease::Lease;
pub(crate) use lock::FORMAT;
pub(crate) use lock::clients::CLOSED;
pub use lock::clients::{HoldState, Holder, Waiter};
pub use lock::ending::{Ending, Operator, Reason, variant};
pub use lock::pattern::{Pattern, Subject};
pub use lock::view::{State, View};
pub use lock::{
    ClientInfo, EnclosingHolds, Fence, HistoryEntry, HoldKind, Id, Key, Label, Mode, Name, Outcome,
    Owner, Prefix, ProcessId, Record, Skipped, Slot, Stored, Token, item,
};
pub(crate) use loss::LockOutcome;
pub(crate) use policy::{Group, OnUnreachable};
pub use policy::{LossPolicy, OnLost, OnReleased, SortOrder};
pub(crate) use reminders::Reminders;
pub use request::{
    Answer, Asked, Listed, Listing, Release, Removal, Renewal, Repeatable, Request, Revocation,
    Seen, Ticket, Verdict,
};
pub use retries::{Attempts, Next};
pub use server_time::ServerTime;
pub(crate) use standing::{Standing, foreign, freeing};
pub(crate) use system_call::{Blame, NAME_ANOTHER, SystemCall};
pub use user_message::UserMessage;
