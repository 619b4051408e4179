//! Locks on Redis or Valkey, by the scripts of `lua/`: on one server, behind Sentinel, or on a cluster.

mod cluster;
mod node;
mod refusal;
mod reply;
mod scripted;
mod scripts;
mod sentinel;
mod single;

pub(super) use cluster::Cluster;
pub(super) use node::{Question, Run};
pub(super) use scripted::Scripted;
pub(super) use sentinel::Sentinel;
pub(super) use single::Single;
