//! Everything that decides: names, leases, the lock model, the waiter, the supervisor, the quorum.
//!
//! Values in, values out: nothing here knows a clock, a file, a socket or a thread. The drivers are
//! `store`, `wait` and `supervise`.

pub mod back_off;
pub mod duration;
pub mod failure;
pub mod instant;
pub mod lease;
pub mod lock;
pub mod loss;
pub mod model;
pub mod policy;
pub mod quorum;
pub mod reminders;
pub mod renewals;
pub mod request;
pub mod retries;
pub mod servers;
pub mod supervisor;
pub mod user_message;
pub mod waiter;

pub use back_off::BackOff;
pub use duration::{BoundedDuration, Timeout, Ttl, is_duration, millis, show};
pub use failure::{Delivery, Failure};
pub use instant::Instant;
pub use lease::Lease;
pub use lock::ending::{Ending, Operator, Reason, variant};
pub use lock::pattern::{Pattern, Subject};
pub use lock::view::{CLOSED, HoldState, Holder, ServerTime, State, View, Waiter};
pub use lock::{
    ClientInfo, EnclosingHolds, FORMAT, Fence, HistoryEntry, HoldKind, Id, Key, Label, Mode, Name,
    Outcome, Owner, Prefix, ProcessId, Skipped, Slot, Stored, Token,
};
pub use loss::LockOutcome;
pub use policy::{Group, LossPolicy, OnLost, OnUnreachable, SortOrder};
pub use reminders::Reminders;
pub use request::{
    Answer, Asked, Listed, Listing, Release, Removal, Renewal, Repeatable, Request, Revocation,
    Seen, Ticket, Verdict,
};
pub use retries::{Attempts, Next};
pub use user_message::UserMessage;
