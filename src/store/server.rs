//! Locks on Redis or Valkey, kept by the scripts of `lua/`: on one server, on the master behind
//! Sentinel, or on a cluster.

pub mod cluster;
pub(super) mod facts;
mod list;
pub mod node;
mod race;
mod redis_store;
pub mod refusal;
pub mod reply;
pub mod scripts;
pub(super) mod sentinel;
pub mod topology;

pub(super) use cluster::Cluster;
pub(super) use node::Probe;
pub use node::{Node, Reply};
pub use redis_store::RedisStore;
pub(super) use sentinel::Sentinel;
