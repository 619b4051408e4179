//! Stores keep locks: the trait that every store implements, with its requests, answers and
//! failures.
//!
//! `location` reads URLs, and `open` makes the store that they mean. The rest of rlock sees only
//! the trait, so it does not know which kind of store it uses.

mod failure;
mod local;
pub(crate) mod location;
pub(crate) mod model;
mod open;
pub(crate) mod quorum;
pub(crate) mod server;
mod waiting;
mod wire;

use std::time::Duration;

use crate::duration::{Ttl, show};
use crate::lock::pattern::Pattern;
use crate::lock::view::{Holder, Operator, Outcome, Reason, ServerTime, View, Waiter};
use crate::lock::{ClientInfo, Fence, Id, Key, Mode, Name, Owner, Prefix, Slot, Token};
use crate::report::{Diagnostic, Fault};
use crate::system::clock::Instant;
pub(crate) use crate::system::poll::Interrupt;
pub(crate) use failure::{Failure, Fate};
#[cfg(any(test, fuzzing))]
pub(crate) use {local::copies, server::fuzz};

/// A request for a lock. Its token identifies it, so sending it again does not make it another one.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) mode: Mode,
    pub(crate) ttl: Ttl,
    /// The shortest time from the grant for which the lock stays taken, even if it is released
    /// sooner.
    pub(crate) at_least: Duration,
    /// The owner that the user chose. Without one, the owner is that of the innermost enclosing
    /// hold that still exists, or else `fresh_owner`.
    pub(crate) owner: Option<Owner>,
    pub(crate) fresh_owner: Owner,
    /// The tokens of the enclosing holds of this lock, the innermost last. Some may have ended.
    pub(crate) enclosing: Vec<Token>,
    /// Whether the request may share the lock with holds of the same owner.
    pub(crate) reentrant: bool,
    /// Whether it goes ahead of all waiters without this.
    pub(crate) next: bool,
    /// Whether it cancels older waiting requests with this. Only for a request that waits.
    pub(crate) supersedes: bool,
    /// The ticket from the first answer, if it supersedes.
    pub(crate) arrival: Option<Ticket>,
    /// The longest time after which the waiter asks again, so that the store knows it is alive;
    /// `None` if the request does not wait.
    pub(crate) heartbeat: Option<Duration>,
    /// The client's details, for those who inspect the lock; see `ClientInfo`.
    pub(crate) client: String,
    /// What one of several servers is asked; `None` if it is the only one.
    pub(crate) part: Option<Part>,
}

/// What a request asks of one of several servers, none of which grants the lock by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// A place in the queue: with the ticket on which the servers agreed, or with the one that the
    /// server proposes.
    Place(Option<Ticket>),
    /// The hold, if the server calls the request: with this fencing token, or a larger one if the
    /// server has granted this one already. The ticket is that of `Place`.
    Settle(Option<Ticket>, Fence),
    /// A hold that the server has lost, while enough others have it.
    Restore(Fence),
}

/// The number by which queues are ordered: the smaller one is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// The place of a request in the queue of one of several servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) view: View,
    /// From 1.
    pub(crate) position: u64,
    /// Ask this server again after this time, to keep the place.
    pub(crate) sleep: Duration,
    pub(crate) ticket: Ticket,
    /// The fencing token that the server would give, if it calls the request: the request may settle.
    pub(crate) called: Option<Fence>,
    /// Whether older requests with agreed tickets keep it out. Only for a request that does not
    /// wait.
    pub(crate) kept_out: bool,
}

/// A holder that a waiter has seen. It helps a server that has lost its data since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) holder: Holder,
    /// The lock's life at that time: a random value. A server that has lost its data makes another
    /// one.
    pub(crate) life: String,
    /// How long the lease may still last, by the waiter's clock.
    pub(crate) left: Duration,
}

/// What a single attempt at a lock returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Answer(Answer),
    /// The answer of one of several servers to `Part::Place` or `Part::Settle`, unless it is another.
    Placed(Place),
    /// Nothing is decided yet, because the call reached its limit for cleanup. Ask again at once,
    /// as another attempt.
    Again,
    /// A fencing token or ticket is implausible: it is this far ahead of the server's clock, which
    /// shows `now`.
    FenceAhead {
        ahead: Duration,
        now: ServerTime,
    },
}

/// How many attempts one request takes at most. Each cleans up 100 expired holds or waiters.
const MOST_ATTEMPTS: usize = 1_000;

/// Repeats `ask` until it returns an answer.
fn decided(ask: impl FnMut(u64) -> Result<Verdict, Failure>) -> Result<Answer, Failure> {
    match final_verdict(attempt_number(), ask)? {
        Verdict::Answer(answer) => Ok(answer),
        Verdict::FenceAhead { ahead, .. } => {
            let ahead = show(ahead);
            let what = format!("last fencing token is {ahead} ahead of the server's clock");
            let remedy = "check the clock (see man rlock)";
            Err(Failure::misconfigured(Fault::new(what).with_remedy(remedy)))
        }
        // Only a hostile server gets here: no request was for a place.
        _ => Err(undecided()),
    }
}

/// The number of an attempt that begins now: the microseconds since boot, which exceed the numbers
/// of all earlier attempts on this host.
fn attempt_number() -> u64 {
    Instant::now().micros_since_boot()
}

/// Repeats `ask` until it returns an answer or a place. Each call gets a larger attempt number, from
/// `first`.
fn final_verdict(
    first: u64,
    mut ask: impl FnMut(u64) -> Result<Verdict, Failure>,
) -> Result<Verdict, Failure> {
    let mut attempt = first;
    for _ in 0..MOST_ATTEMPTS {
        match ask(attempt)? {
            Verdict::Again => attempt = attempt_number(),
            verdict => return Ok(verdict),
        }
    }
    Err(undecided())
}

/// Only a damaged lock or a hostile server gets here.
fn undecided() -> Failure {
    let fault = Fault::new(format!("no decision after {MOST_ATTEMPTS} attempts"));
    Failure::Unavailable(fault.with_remedy("try again shortly"))
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Granted {
        fence: Fence,
        /// The number of the holder in a lock with slots; `None` in another mode, or on several
        /// servers.
        slot: Option<Slot>,
    },
    /// The lock is not free, and the request does not wait.
    Busy(View),
    /// An enclosing hold has the lock, so waiting would deadlock.
    Nested,
    /// An exclusive request within a shared hold of the same owner, which is never granted.
    Upgrade,
    /// The token was released, or the request was given up.
    Over(Reason),
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
        /// The ticket of a request that supersedes. It cancels older requests only when it asks
        /// again with this ticket.
        arrival: Option<Ticket>,
        /// Why no request can be granted the lock now, if the servers themselves prevent it.
        obstacle: Option<Failure>,
    },
}

/// The answer to a renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Renewal {
    /// The lease expires after `left`. That is longer than the TTL asked for if the lease already
    /// lasted longer.
    Renewed {
        fence: Fence,
        left: Duration,
        mode: Mode,
    },
    NotHeld(Reason),
}

/// How `Store::revoke` ends holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revocation {
    /// The holder learns of it from its next renewal. The lock stays taken until the holder
    /// releases it or its lease expires.
    Graceful,
    /// The lock becomes free at once. For holders that are known to be dead, and for locks of other
    /// tools.
    Now,
}

/// The answer to `Store::remove`: the client as it was before, and the time on the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Removal {
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

/// The answer to a release.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Release {
    Released,
    NotHeld(Reason),
    /// The hold is gone, and an earlier copy of this release, whose reply was lost, probably ended
    /// it.
    Unknown,
}

/// An answer to a request that may have been sent more than once.
pub(crate) trait Repeatable: Sized {
    /// What it means if an earlier copy of the request, whose reply was lost, may have taken effect.
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
pub(crate) struct Asked {
    /// The time just before the request was sent.
    pub(crate) sent: Instant,
    pub(crate) answer: Answer,
}

/// A lock in a list, or why it cannot be read.
pub(crate) type Listed = (Name, Result<View, Failure>);

/// The locks that could be read, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) locks: Vec<Listed>,
    /// One failure for each server whose locks could not be listed.
    pub(crate) failures: Vec<Failure>,
}

/// Keeps locks. Every implementation decides requests as the scripts in `lua/` do. The model in
/// `store::model` is the same algorithm in Rust.
///
/// These rules hold for every method:
///
/// - Each call returns within the I/O timeout that the store was opened with, or when its interrupt
///   becomes readable. `sleep` may take `at_most` longer. A store may ask several servers in turn or
///   page through long lists, and then the timeout bounds each step. On one host, it bounds the wait
///   between two changes of other processes to the same lock.
/// - A lease counts by the store's clock from when the request arrives there. Its holder counts from
///   before it sent the request, so it stops earlier.
/// - A call may be repeated after a failure. A hold is identified by its token, so a repetition does
///   not acquire, release or renew anything twice.
/// - After a failure that may have taken effect (`Failure::maybe_executed`), `leave` undoes a request.
///   A copy of that request that arrives later must have no effect.
pub(crate) trait Store: Send {
    /// Asks for a lock, or asks again while waiting for it. A waiter asks again at the latest after
    /// the `sleep` of the last answer. A request with a heartbeat is queued if the lock is not
    /// free, and forgotten if the waiter does not ask again in time.
    ///
    /// `seen` lists the holders in the last answer to the caller. A server that has lost its data
    /// since then reinstates them until their leases must have expired, so that it does not grant
    /// the lock twice.
    fn acquire(
        &mut self,
        request: &Request,
        seen: &[Seen],
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure>;

    /// Sleeps until a queued request may have been granted, but no longer than `at_most`. It may
    /// return early for any reason; only an answer determines whether the lock was granted. To save
    /// a round trip, a store may ask again itself, as `acquire` does with `seen`.
    fn sleep(
        &mut self,
        request: &Request,
        at_most: Duration,
        seen: &[Seen],
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Asked>, Failure>;

    /// Extends a hold: its lease expires `ttl` from now. Without `ttl`, it gets the length of the
    /// last grant or renewal. A renewal never shortens the lease of `rlock exec` or of a
    /// `--while-pid` keeper, because these rely on it.
    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Option<Ttl>,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure>;

    /// Ends a hold, and records the outcome of its command in the lock's history. From then on the
    /// token is refused: no late request with it can acquire the lock, even if the hold was not
    /// found.
    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure>;

    /// Undoes a request: afterward it is neither queued nor granted, and its token is refused.
    /// Returns the lock as it is then.
    fn leave(&mut self, request: &Request) -> Result<View, Failure>;

    /// Undoes a request as `leave` does, without awaiting the reply: for a server that has not
    /// answered, which would only delay the end again.
    fn abandon(&mut self, request: &Request);

    /// Revokes all current holds, and returns the lock as it was before, with only the holders that
    /// it revoked. Waiters and the fencing token stay as they are. `by` is an `Operator` as stores
    /// keep it, for the holders and the history.
    ///
    /// A repetition revokes no later hold than the first call, and returns what either revoked.
    fn revoke(&mut self, key: &Key, revocation: Revocation, by: &str) -> Result<View, Failure>;

    /// Revokes one hold, or removes one waiter. A holder learns of it from its next renewal, and a
    /// waiter at once. `by` is as for `revoke`.
    fn remove(
        &mut self,
        key: &Key,
        id: &Id,
        revocation: Revocation,
        by: &str,
    ) -> Result<Removal, Failure>;

    /// The lock as it is now, with its holders, waiters and history. It changes nothing.
    fn inspect(&mut self, key: &Key) -> Result<View, Failure>;

    /// All locks that are not free, whose keys start with the prefix and whose names match the
    /// pattern. A lock that cannot be read does not hide the others.
    fn list(&mut self, prefix: &Prefix, pattern: Option<&Pattern>) -> Result<Listing, Failure>;

    /// Warnings about server settings that can lose locks, one line each.
    fn hazards(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Messages since the last call besides the answers, such as one about a failover.
    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        Vec::new()
    }
}
