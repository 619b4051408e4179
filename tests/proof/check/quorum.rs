//! A quorum of three servers, any of which may die, freeze or forget.
//!
//! What is played is `rules::quorum::Acquisition` with its votes, the waiter of `wait`, the lock
//! model for each server, and the decisions about renewals. The files here do the work of
//! `store::quorum`'s driver and threads.
//!
//! What keeps the number of states small:
//!
//! - Time passes in ticks of a second, as for one server. Shorter pauses end at any moment before.
//! - Servers are the same, so their order does not matter.
//! - A renewal is one step: what it does on one server does not affect the others.
//! - Fencing tokens keep their order, and whether one follows another directly. Most are ahead of the
//!   servers' clocks, so each new one is the previous one plus one.

mod acquisition;
mod canonical;
mod client;
mod moves;
mod play;
mod properties;
mod scopes;
mod server;
mod stories;
mod trace;
mod world;
