//! Flaws that a test can seed, to see that the checker finds each of them. A normal build has none:
//! there, `seeded` is always false.

/// A flaw, named for what it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A newcomer that could share the lock overtakes the queue.
    Overtakes,
    /// A release does not hand the lock over.
    KeepsAfterRelease,
    /// No waiter is ever woken.
    WakesNobody,
    /// A new head of the queue does not learn that it is one.
    TellsNoHead,
    /// The head of the queue does not watch for the end of the lease.
    SleepsPastTheLease,
    /// A grant gets the fencing token of the last one.
    RepeatsFence,
    /// The server lets a renewed lease expire a second early.
    ExpiresEarly,
    /// One more client gets a slot.
    AddsASlot,
    /// A new holder gets the number of holders as its own, though another may have that number.
    RepeatsSlot,
    /// A release ignores `--at-least`.
    IgnoresAtLeast,
    /// A revoked hold can be renewed.
    RenewsRevoked,
    /// A late copy of a request drops the hold that a later one acquired.
    ObeysLateCopies,
    /// A late request can revive one that was given up.
    ForgetsFarewells,
    /// A late request can revive a hold that was released.
    ForgetsReleases,
    /// A grant that nobody claims lasts for the whole TTL.
    KeepsUnclaimed,
    /// A deleted key ends its holds at once.
    FreesDeleted,
    /// Reminders of holders are ignored.
    IgnoresReminders,
    /// An idle lock keeps more than its fence and its life.
    LeavesTraces,
    /// A waiter with --next waits behind all others.
    ForgetsNext,
    /// A waiter that comes back supersedes the newer one that superseded it.
    ForgetsTheNewest,
    /// A call that finds a waiter never finishes its cleanup.
    NeverFinishes,
    /// A client counts on its lease for a second too long.
    CountsTooLong,
    /// A client counts a renewed lease from the answer, not from the request.
    CountsFromAnswer,
    /// A client accepts a grant whose lease is over.
    AcceptsLateGrants,
    /// The supervisor does not stop a command whose hold was lost.
    IgnoresLoss,
    /// On several servers, calls from enough of them count as a grant.
    CountsCalls,
    /// A majority is enough for a slot.
    CountsSlotsAsOne,
    /// A server votes although it may have forgotten a lease.
    TrustsYoungServers,
    /// A server keeps the ticket that it proposed, whatever the servers agreed on.
    KeepsProposedTickets,
    /// A request that does not wait loses to one whose ticket is only proposed.
    LosesToProposals,
    /// A waiter that is called stays called, however long it is silent.
    NeverLapses,
}

/// Whether a test has seeded this flaw.
#[cfg(not(test))]
pub(crate) const fn seeded(_: Flaw) -> bool {
    false
}

#[cfg(test)]
pub(crate) use in_tests::{seeded, with};

#[cfg(test)]
mod in_tests {
    use std::cell::Cell;

    use super::Flaw;

    thread_local! {
        static SEEDED: Cell<Option<Flaw>> = const { Cell::new(None) };
    }

    pub(crate) fn seeded(flaw: Flaw) -> bool {
        SEEDED.get() == Some(flaw)
    }

    /// Acts with a flaw on this thread.
    pub(crate) fn with<T>(flaw: Flaw, act: impl FnOnce() -> T) -> T {
        SEEDED.set(Some(flaw));
        let result = act();
        SEEDED.set(None);
        result
    }
}
