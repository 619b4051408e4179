//! The kinds of servers.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Server,
    Files,
    Sentinel,
    Cluster,
    /// A master and its replica behind one name, which moves.
    Endpoint,
    /// Of so many servers.
    Quorum(usize),
}

impl Kind {
    /// Of each master.
    pub fn replicas(self) -> u64 {
        match self {
            Self::Sentinel => 2,
            Self::Cluster | Self::Endpoint => 1,
            _ => 0,
        }
    }

    /// Whether workers reach the servers through their own proxies.
    pub fn has_wires(self) -> bool {
        matches!(self, Self::Server | Self::Quorum(_) | Self::Endpoint)
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

    /// How many servers may fail at once.
    pub fn minority(self) -> usize {
        match self {
            Self::Quorum(servers) => (servers - 1) / 2,
            _ => 1,
        }
    }
}
