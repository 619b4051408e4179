//! Which store a location means.

use std::time::Duration;

use super::local::Local;
use super::quorum::Quorum;
use super::server::{Cluster, Scripted, Sentinel, Single};
use super::{Location, Store};

/// Opens the store at a location, where grants and renewals count once so many replicas have them.
/// Connects on first use only; an error is a file for TLS that cannot be used.
pub(crate) fn open(
    location: &Location,
    io_timeout: Duration,
    min_replicas: u32,
) -> Result<Box<dyn Store>, String> {
    Ok(match location {
        Location::Server(server) => {
            let server = Single::new(server.clone(), io_timeout, None)?;
            Box::new(Scripted::new(server, min_replicas))
        }
        Location::Sentinels(sentinels) => {
            let sentinel = Sentinel::new(sentinels, io_timeout)?;
            Box::new(Scripted::new(sentinel, min_replicas))
        }
        Location::Cluster(nodes) => {
            Box::new(Scripted::new(Cluster::new(nodes, io_timeout)?, min_replicas))
        }
        Location::Quorum(servers) => Box::new(Quorum::new(servers, io_timeout, min_replicas)?),
        Location::Local(directory) => Box::new(Local::new(directory.clone(), io_timeout)),
    })
}
