//! Plays every history of a few clients and one server, and not only some: every order of messages,
//! losses, late messages, crashes, signals, revocations and restarts that a scope allows.
//!
//! What is played is the code that ships: the lock model of `store::model`, the waiter of `wait`, the
//! renewals and the supervisor of `supervise`, and the attempts to release of `commands`. The files
//! here only carry messages, let time pass, and watch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod canonical;
mod client;
mod connection;
mod flaws;
mod monitor;
mod properties;
mod scope;
mod scopes;
mod search;
mod trace;
mod world;
