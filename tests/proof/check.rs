//! Plays every history of a few clients and one server (`single`) or a quorum, not a sample: every
//! order of messages, losses, late messages, crashes, signals, revocations and restarts that a scope
//! allows.
//!
//! What is played is the code that ships: all of `rules`, and the scripts beside the model (`calls`).
//! The files here only carry messages, let time pass, and watch. `search` drives both worlds.
//!
//! Three things keep the number of states small:
//!
//! - Time passes in ticks of a second, and all that is due happens at the next tick. Only supervisors
//!   act in between, at their own moments. A lease is three ticks less 1 ms, so that no tick is spare.
//! - States that behave the same are one state (`canonical`): times count from now, fencing tokens and
//!   attempts have only an order, and what is only shown is blank.
//! - A client reads a reply at once if nothing more can delay it, lose it or come before it. Reading
//!   it later only sends the next request later, which is played anyway.

mod action;
mod calls;
mod lock;
mod property;
mod quorum;

mod report;
mod scope;
mod search;
mod shift;
mod single;
mod time;
mod trace;
