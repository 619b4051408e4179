//! The kinds of servers.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Server,
    Files,
    Sentinel,
    Cluster,
    /// Of so many servers.
    Quorum(usize),
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::Server,
        Self::Files,
        Self::Sentinel,
        Self::Cluster,
        Self::Quorum(3),
        Self::Quorum(5),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "one server",
            Self::Files => "local:",
            Self::Sentinel => "Sentinel",
            Self::Cluster => "a cluster",
            Self::Quorum(3) => "a quorum of three",
            Self::Quorum(_) => "a quorum of five",
        }
    }

    /// Of each master.
    pub fn replicas(self) -> u64 {
        match self {
            Self::Sentinel => 2,
            Self::Cluster => 1,
            _ => 0,
        }
    }

    pub fn is_quorum(self) -> bool {
        matches!(self, Self::Quorum(_))
    }

    /// How many servers vote.
    pub fn servers(self) -> usize {
        match self {
            Self::Quorum(servers) => servers,
            _ => 1,
        }
    }

    /// Whether the clock of this server is far ahead.
    pub fn is_ahead(self, server: usize) -> bool {
        self == Self::Quorum(5) && server == 0
    }

    /// How far the clock of this server is ahead when it starts.
    pub fn ahead(self, server: usize) -> Duration {
        Duration::from_secs(if self.is_ahead(server) { 2 * 24 * 3_600 } else { 0 })
    }

    /// How many servers may fail at once.
    pub fn minority(self) -> usize {
        match self {
            Self::Quorum(servers) => (servers - 1) / 2,
            _ => 1,
        }
    }
}
