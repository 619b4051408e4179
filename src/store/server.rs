//! Locks on Redis or Valkey, kept by the scripts of `lua/`: on one server, on the master behind
//! Sentinel, or on a cluster.

mod answers;
mod cluster;
mod eviction;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod list;
mod node;
mod redis_store;
mod refusal;
mod reply;
mod scripts;
mod sentinel;
mod topology;

pub(super) use cluster::Cluster;
pub(super) use node::{Node, Probe};
pub(super) use redis_store::RedisStore;
#[cfg(test)]
pub(super) use redis_store::acquire_fields;
#[cfg(test)]
pub(super) use scripts::mailbox;
pub(super) use sentinel::Sentinel;
