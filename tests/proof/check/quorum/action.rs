//! The actions of a search.

/// What can happen. Numbers stand for clients and servers, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Start(u8),
    /// A server executes the next request of a client.
    Execute(u8, u8),
    Read(u8, u8),
    /// A message wakes a client.
    Hear(u8, u8),
    /// A command ends.
    Finish(u8),
    /// A short pause of a client is over.
    Hurry(u8),
    /// A server executes the next late request of a client.
    ExecuteLate(u8, u8),
    LoseLate(u8, u8),
    Thaw(u8),
    /// A second passes.
    Tick,

    // Faults and signals.
    Break(u8, u8),
    Crash(u8),
    Signal(u8),
    Die(u8),
    Freeze(u8),
    Forget(u8),
}
