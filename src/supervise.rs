//! From a lease to an exit: runs a command, or watches a process, while a lease lasts.
//!
//! `event_loop` runs both, around one state machine (`rules::supervisor`), which makes all decisions
//! and has no side effects.

mod child;
mod command;
mod descendants;
mod event_loop;
mod group;
pub(crate) mod keeper_process;
mod process;
mod renewer;
mod started;
mod unusable;
mod upkeep;
pub(crate) mod watched;

pub(crate) use command::{Command, Variables, run_unlocked};
pub(crate) use group::OwnGroup;
pub(crate) use renewer::RenewableHold;
pub(crate) use started::{Completion, Guarded, run};
pub(crate) use upkeep::Upkeep;
