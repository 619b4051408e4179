//! Which store a location means.

use std::time::Duration;

use super::Store;
use super::cell::CellStore;
use super::local::LocalPlace;
use super::location::{Location, Sentinels};
use super::quorum::Quorum;
use super::server::{Cluster, Node, RedisStore, Sentinel};
use crate::rules::Failure;

impl Location {
    /// Opens the store at this location. It connects on first use.
    ///
    /// `io_timeout` bounds each connection attempt and each reply. A grant or a renewal counts once
    /// `min_replicas` replicas have confirmed it; 0 asks none, and a local store ignores it.
    ///
    /// # Errors
    ///
    /// Two URLs of a quorum lead to the same server, or no thread can be started for it.
    pub fn open(&self, io_timeout: Duration, min_replicas: u32) -> Result<Box<dyn Store>, Failure> {
        Ok(match self {
            Self::Server(server) => {
                // A replica refuses what the scripts write, so its role need not be asked.
                let probe = None;
                let node = Node::new(server.clone(), io_timeout, probe);
                Box::new(RedisStore::new(node, server.database, min_replicas))
            }
            Self::Sentinels(Sentinels { sentinels, service, master }) => {
                let sentinel = Sentinel::new(sentinels, service, master, io_timeout);
                Box::new(RedisStore::new(sentinel, master.database, min_replicas))
            }
            Self::Cluster(nodes) => {
                Box::new(RedisStore::new(Cluster::new(nodes, io_timeout), 0, min_replicas))
            }
            Self::Quorum(servers) => Box::new(Quorum::new(servers, io_timeout, min_replicas)?),
            Self::Local(directory) => {
                Box::new(CellStore::new(LocalPlace::new(directory.clone()), io_timeout))
            }
        })
    }
}
