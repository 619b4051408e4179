//! Locks on Redis or Valkey, kept by the scripts of `lua/`: on one server, on the master behind
//! Sentinel, or on a cluster.

mod answers;
mod cluster;
mod eviction;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod list;
mod node;
mod refusal;
mod reply;
mod scripted;
mod scripts;
mod sentinel;
mod single;
mod topology;

pub(super) use cluster::Cluster;
pub(super) use node::Probe;
pub(super) use scripted::Scripted;
#[cfg(test)]
pub(super) use scripts::mailbox;
pub(super) use sentinel::Sentinel;
pub(super) use single::Single;
