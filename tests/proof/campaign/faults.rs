//! The faults, and what each may do to a lock.

use std::time::Duration;

use super::kind::Kind;

/// The largest number of workers in a round.
pub const WORKERS: usize = 6;

/// Which servers each worker reaches through a wire that is hit: one bit for each.
pub type Wires = [u64; WORKERS];

/// A fault at a time of the round.
#[derive(Clone, Debug)]
pub struct Fault {
    pub what: What,
    /// From the start of the round.
    pub at: Duration,
    /// Ignored by faults that are over at once.
    pub lasting: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The worker whose command runs when the fault comes.
    Holder,
    Worker(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// By the number of the server. With replicas, it is the master of the lock instead.
    OnServer(usize, Hit),
    /// Cuts each worker off from servers that may be others for each.
    Part(Wires),
    /// One way.
    Delay(Wires, Duration),
    /// Delivers only so many bytes of the next reply, and then breaks the connection.
    BreakReply(Wires, usize),
    Stop(Whom),
    /// Stops all processes of a worker, as a host does that is suspended.
    Suspend(Whom),
    Kill(Whom),
    Terminate(Whom),
    /// `release --force`
    Revoke,
    /// `release --force --now`
    Free,
}

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    Freeze,
    /// It is down for a while. A master is replaced, a server of a quorum loses its data.
    Down,
    RestartEmpty,
    /// Cluster: the replica takes over from a living master.
    FailOver,
    /// Endpoint: the replica takes over behind the name.
    Move(Move),
    /// Deletes all data.
    Flush,
    /// On `local:`, the file with that name.
    DeleteKey,
    KillConnections,
    /// By so many milliseconds, forward or back.
    StepClock(i64),
}

/// What the old master of an endpoint does while the name moves to the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It becomes a replica, and keeps its connections.
    Kept,
    /// It becomes a replica, and closes its connections.
    Cut,
    /// Before, the replica lags for a while, and never receives what it missed.
    Lag,
    /// For a while, it refuses writes without a replica.
    NoReplicas,
    /// For a while, it stays a master.
    TwoMasters,
}

pub const MOVES: [(&str, Move); 5] = [
    ("kept", Move::Kept),
    ("cut", Move::Cut),
    ("lag", Move::Lag),
    ("no-replicas", Move::NoReplicas),
    ("two-masters", Move::TwoMasters),
];

/// What a fault may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Requests and replies are late or fail.
    Delays,
    /// This server of a quorum fails, and the others go on.
    FailsOne(usize),
    /// Each worker is cut off from its own servers of a quorum.
    Parts(Wires),
    /// Connections break.
    Breaks,
    /// The server may lose grants.
    Loses,
    /// As `Loses`, although the new master has the data that it has received.
    FailsOver,
    /// For a while, a name leads to no master that serves. `whole`: the new one has all that the old
    /// one had. `frees`: it may lack grants that were acknowledged, or both may grant.
    Moves {
        whole: bool,
        frees: bool,
    },
    /// The holders lose the lock, and others are kept out until they have stopped.
    Revokes,
    /// The holders lose the lock at once.
    Frees,
    /// Leases end sooner.
    Hurries,
    /// Leases end later.
    Prolongs,
    Stops(usize),
    /// This worker ends by a signal.
    Ends(usize),
}

impl Hit {
    /// Whether the server does not answer until the fault ends.
    pub fn lasts(self) -> bool {
        matches!(
            self,
            Self::Freeze | Self::Down | Self::Move(Move::Lag | Move::NoReplicas | Move::TwoMasters)
        )
    }
}

impl What {
    /// Whether the fault has a length.
    pub fn lasts(self) -> bool {
        match self {
            Self::OnServer(_, hit) => hit.lasts(),
            Self::Part(_) | Self::Delay(..) | Self::Stop(_) | Self::Suspend(_) => true,
            _ => false,
        }
    }

    /// Whether a replica may take over from a master that does not answer.
    pub fn may_replace_master(self, kind: Kind) -> bool {
        kind.replicas() > 0 && matches!(self, Self::OnServer(_, Hit::Freeze | Hit::Down))
    }

    /// Whether the fault can be felt by this worker.
    pub fn concerns(self, number: usize) -> bool {
        match self {
            Self::Part(wires) | Self::Delay(wires, _) | Self::BreakReply(wires, _) => {
                wires[number] != 0
            }
            _ => true,
        }
    }
}
