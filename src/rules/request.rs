//! What a store is asked, and what it answers.

use std::time::Duration;

use super::duration::Ttl;
use super::failure::Failure;
use super::instant::Instant;
use super::lock::clients::{Holder, Waiter};
use super::lock::ending::{Operator, Reason};
use super::lock::view::View;
use super::lock::{ClientInfo, Fence, Key, Mode, Name, Owner, Slot, Token};
use super::server_time::ServerTime;

/// A request for a lock. Its token identifies it, so sending it again does not make it another one.
/// In `lua/requests/`, a request is whatever a client asks of a server: each script there is one.
#[derive(Clone, Debug, Hash)]
pub struct Request {
    pub key: Key,
    pub token: Token,
    pub mode: Mode,
    pub ttl: Ttl,
    /// The shortest time from the grant for which the lock stays taken, even if it is released
    /// sooner.
    pub at_least: Duration,
    /// The owner that the user chose. Without one, the owner is that of the innermost enclosing
    /// hold that still exists, or else `fresh_owner`.
    pub owner: Option<Owner>,
    /// An owner that no other request has. Its end becomes the generation of a lock without one.
    pub fresh_owner: Owner,
    /// The tokens of the enclosing holds of this lock, the innermost last. Some may have ended.
    pub enclosing: Vec<Token>,
    /// Whether the request may share the lock with holds of the same owner.
    pub reentrant: bool,
    /// Whether it goes ahead of all waiters without this.
    pub next: bool,
    /// Whether it cancels older waiting requests with this. Only for a request that waits.
    pub supersedes: bool,
    /// From the first answer, if it supersedes: the server's time in microseconds, by
    /// which the newest of such requests remains. Only on a quorum is it also the ticket.
    pub arrival: Option<Ticket>,
    /// The longest time after which the waiter asks again, so that the store knows it is alive;
    /// `None` if the request does not wait.
    pub heartbeat: Option<Duration>,
    /// The holders that the earlier answers to this request have shown it.
    pub seen: Option<Seen>,
    pub client: ClientInfo,
    /// Whether its client withdraws it because the lock is busy.
    pub is_skipped: bool,
}

impl Request {
    /// An exclusive request that does not wait, without any options.
    pub fn plain(key: Key, token: Token, fresh_owner: Owner, ttl: Ttl) -> Self {
        Self {
            key,
            token,
            mode: Mode::Exclusive,
            ttl,
            at_least: Duration::ZERO,
            owner: None,
            fresh_owner,
            enclosing: Vec::new(),
            reentrant: false,
            next: false,
            supersedes: false,
            arrival: None,
            heartbeat: None,
            seen: None,
            client: ClientInfo::default(),
            is_skipped: false,
        }
    }
}

/// The number by which queues are ordered: the smaller one is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The holders that a waiter has seen. A server that has lost its data since then closes the lock
/// until their leases must have expired, so that it does not grant the lock twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The lock's generation at that time: a random value. A server that has lost its data makes
    /// another one.
    pub generation: String,
    /// The largest of their fencing tokens.
    pub fence: Fence,
    /// How long the longest of their leases may still last, by the waiter's clock.
    pub left: Duration,
    /// Their ids; `*` for those that were not listed.
    pub ids: Vec<String>,
}

/// What a single attempt at a lock returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "almost every verdict is an answer")]
pub enum Verdict {
    Answer(Answer),
    /// Nothing is decided yet, because the call reached its limit for cleanup. Ask again at once,
    /// as another attempt.
    Again,
    /// A number that orders grants is implausible: it is this far ahead of the server's clock,
    /// which shows `now`.
    AheadOfClock {
        ahead: Duration,
        now: ServerTime,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Granted {
        fence: Fence,
        /// The number of the holder in a lock with slots; `None` in another mode.
        slot: Option<Slot>,
    },
    /// The lock is not free, and the request does not wait.
    Busy(View),
    /// An enclosing hold has the lock, and the request may not enter it.
    Nested,
    /// An exclusive request within a shared hold of the same owner, which is never granted.
    Upgrade,
    /// The token was released, or the request was withdrawn.
    Ended(Reason),
    /// A newer request that supersedes has ended this one.
    Superseded(ClientInfo),
    /// An operator has ended this request.
    Removed(Operator),
    /// The request waits. Ask again after `sleep`, or when `Store::sleep` returns.
    Queued {
        view: View,
        /// The position in the queue, from 1.
        position: u64,
        sleep: Duration,
        /// When a request that supersedes arrived. It cancels older requests only when it asks
        /// again with this.
        arrival: Option<Ticket>,
        /// Why no request can be granted the lock now, if the servers themselves prevent it.
        obstacle: Option<Failure>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// The lease expires after `left`. That is longer than the TTL asked for if the lease already
    /// lasted longer.
    Renewed {
        fence: Fence,
        slot: Option<Slot>,
        left: Duration,
        /// What was left before.
        before: Duration,
    },
    NotHeld(Reason),
}

/// How `Store::revoke` ends holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The holder learns of it from its next renewal. The lock stays taken until the holder
    /// releases it or its lease expires.
    Graceful,
    /// The lock becomes free at once. For holders that are known to be dead, and for locks of other
    /// tools.
    Now,
}

/// The answer to `Store::remove`: the client as it was before, and the time on the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// It held the lock.
    Revoked(Holder, ServerTime),
    /// It waited for the lock.
    Removed(Waiter, ServerTime),
    /// It neither holds nor awaits the lock.
    Unknown(View),
    /// It neither holds nor awaits the lock, and an earlier copy of this request, whose reply was
    /// lost, probably ended that.
    Gone,
    /// Several clients have this ID.
    Several(View),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    Released,
    NotHeld(Reason),
    /// The hold is gone, and an earlier copy of this release, whose reply was lost, probably ended
    /// it.
    Unknown,
}

/// An answer to a request that may have been sent more than once.
pub trait Repeatable: Sized {
    /// What it means if an earlier copy of the request, whose reply was lost, may have taken
    /// effect.
    fn after_a_lost_reply(self) -> Self {
        self
    }
}

impl Repeatable for Release {
    fn after_a_lost_reply(self) -> Self {
        match self {
            Self::NotHeld(why) if why.is_released() => Self::Released,
            Self::NotHeld(why) if !why.is_known() => Self::Unknown,
            release => release,
        }
    }
}

impl Repeatable for Removal {
    fn after_a_lost_reply(self) -> Self {
        match self {
            Self::Unknown(_) => Self::Gone,
            removal => removal,
        }
    }
}

/// The lease that counts is that of the last copy.
impl Repeatable for Renewal {}

/// `Store::revoke` itself remembers what an earlier copy may have revoked, and `Store::inspect`
/// changes nothing.
impl Repeatable for View {}

/// What the store has asked at the end of a sleep.
#[derive(Debug)]
pub struct Asked {
    /// The time just before the request was sent.
    pub(crate) sent: Instant,
    pub(crate) answer: Answer,
}

/// A lock in a list, or why it cannot be read.
pub type Listed = (Name, Result<View, Failure>);

/// The locks that could be read, sorted by name.
#[derive(Debug, Default)]
pub struct Listing {
    pub locks: Vec<Listed>,
    /// One failure for each server whose locks could not be listed.
    pub failures: Vec<Failure>,
}
