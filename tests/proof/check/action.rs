//! The actions of a search.

/// What can happen. Numbers stand for clients, or for old connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A client asks for the lock.
    Start(u8),
    /// The server executes the next request on a connection.
    Execute(u8),
    /// The client reads its reply.
    Read(u8),
    /// A message wakes a sleeping waiter.
    Wake(u8),
    /// A command ends.
    Finish(u8),
    /// A client stops waiting for a reply that is late.
    TimeOut(u8),
    /// The server executes the next request on an old connection.
    ExecuteLate(u8),
    /// The rest of an old connection is lost.
    LoseLate(u8),
    /// A second passes.
    Tick,
    Resume(u8),
    /// A client can reach the server again.
    Reconnect(u8),
    /// Another tool deletes its key.
    ForeignGone,

    // Faults, signals, and what operators and other tools do.
    Break(u8),
    Crash(u8),
    Signal(u8),
    Revoke,
    RevokeNow,
    DeleteKey,
    ForeignWrites,
    Restart,
    /// The server restarts without its data.
    Forget,
    Pause(u8),
    CutOff(u8),
}
