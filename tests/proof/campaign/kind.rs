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
    /// A quorum of so many names that move.
    QuorumOfEndpoints(usize),
}

impl Kind {
    /// Of each master, as far as they confirm anything.
    pub fn replicas(self) -> u64 {
        match self {
            Self::Sentinel => 2,
            Self::Cluster | Self::Endpoint => 1,
            _ => 0,
        }
    }

    /// Whether workers reach the servers through their own proxies.
    pub fn has_wires(self) -> bool {
        self == Self::Server || self.is_quorum() || self.moves()
    }

    pub fn is_quorum(self) -> bool {
        matches!(self, Self::Quorum(_) | Self::QuorumOfEndpoints(_))
    }

    /// Whether servers have names that move.
    pub fn moves(self) -> bool {
        matches!(self, Self::Endpoint | Self::QuorumOfEndpoints(_))
    }

    /// How many servers vote.
    pub fn servers(self) -> usize {
        match self {
            Self::Quorum(servers) | Self::QuorumOfEndpoints(servers) => servers,
            _ => 1,
        }
    }

    /// How many servers may fail at once.
    pub fn minority(self) -> usize {
        if self.is_quorum() { (self.servers() - 1) / 2 } else { 1 }
    }
}
