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
    /// SIGSTOP to the server or the master.
    Freeze,
    /// Of a quorum.
    FreezeServer(usize),
    /// Sentinel: any replica.
    FreezeReplica,
    RestartEmpty(usize),
    RestartWithData,
    /// Of a quorum: down for a while, then without its data.
    KillServer(usize),
    /// Of a quorum: it answers each request with an error.
    RefuseServer(usize),
    KillMaster,
    /// Cluster: the replica takes over from a living master.
    FailOver,
    MoveSlot,
    /// All sentinels of the mask but the first, which the rounds themselves need.
    StopSentinels(u64),
    /// Deletes all data; on `local:`, all files.
    Flush,
    DeleteKey,
    DeleteKeyOf(usize),
    KillConnections,
    /// Sets the clock of a server forward by so many milliseconds, or back.
    StepClock(usize, i64),
    /// Cuts each worker off from servers that may be others for each.
    Part(Wires),
    /// One way.
    Delay(Wires, Duration),
    /// Delivers only so many bytes of the next reply, and then breaks the connection.
    BreakReply(Wires, usize),
    Stop(Whom),
    Kill(Whom),
    Terminate(Whom),
    /// `release --force`
    Revoke,
    /// `release --force --now`
    Free,
}

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
    /// The holders lose the lock, and others are kept out until they have stopped.
    Revokes,
    /// The holders lose the lock at once.
    Frees,
    /// Leases end sooner.
    Hurries,
    /// Leases end later.
    Prolongs,
    Stops(usize),
    Kills(usize),
    Terminates(usize),
}

impl What {
    /// The name in the table of counts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freeze | Self::FreezeServer(_) => "server frozen",
            Self::FreezeReplica => "replica frozen",
            Self::RestartEmpty(_) => "server restarted empty",
            Self::RestartWithData => "server restarted with its data",
            Self::KillServer(_) => "server killed for a while",
            Self::RefuseServer(_) => "server refusing",
            Self::KillMaster => "master killed",
            Self::FailOver => "failover requested",
            Self::MoveSlot => "slot moved",
            Self::StopSentinels(_) => "sentinels frozen",
            Self::Flush => "all data deleted",
            Self::DeleteKey | Self::DeleteKeyOf(_) => "key deleted",
            Self::KillConnections => "connections killed",
            Self::StepClock(_, millis) if millis > 0 => "clock set forward",
            Self::StepClock(..) => "clock set back",
            Self::Part(_) => "network partitioned",
            Self::Delay(..) => "network slow",
            Self::BreakReply(..) => "reply broken off",
            Self::Stop(_) => "rlock stopped",
            Self::Kill(_) => "rlock killed",
            Self::Terminate(_) => "rlock terminated",
            Self::Revoke => "release --force",
            Self::Free => "release --force --now",
        }
    }

    /// Whether the fault has a length.
    pub fn lasts(self) -> bool {
        matches!(
            self,
            Self::Freeze
                | Self::FreezeServer(_)
                | Self::FreezeReplica
                | Self::KillServer(_)
                | Self::RefuseServer(_)
                | Self::KillMaster
                | Self::MoveSlot
                | Self::StopSentinels(_)
                | Self::Part(_)
                | Self::Delay(..)
                | Self::Stop(_)
        )
    }

    /// Whether a replica may take over from a master that does not answer.
    pub fn may_replace_master(self, kind: Kind) -> bool {
        match self {
            Self::KillMaster => true,
            Self::Freeze => kind.replicas() > 0,
            _ => false,
        }
    }

    /// Whether masters change on purpose, and the old one takes part.
    pub fn is_orderly(self) -> bool {
        matches!(self, Self::FailOver | Self::MoveSlot)
    }

    /// Whether a server or its network fails.
    pub fn hits_a_server(self) -> bool {
        !matches!(
            self,
            Self::Stop(_) | Self::Kill(_) | Self::Terminate(_) | Self::Revoke | Self::Free
        )
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
