//! Everything that decides: names, leases, the lock model, the waiter, the supervisor, the quorum.
//!
//! Values in, values out: nothing here knows a clock, a file, a socket or a thread. The drivers are
//! `store`, `wait` and `supervise`.

pub(crate) mod back_off;
pub(crate) mod duration;
pub(crate) mod failure;
pub(crate) mod fault;
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
pub(crate) mod waiter;
