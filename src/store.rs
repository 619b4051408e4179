//! Stores keep locks: the trait that every store implements, with its requests, answers and
//! failures.
//!
//! `location` reads URLs, and `open` makes the store that they mean. The rest of rlock sees only
//! the trait, so it does not know which kind of store it uses.

mod blocking;
mod cell;
pub(crate) mod denial;
pub mod local;
pub mod location;
mod open;
pub mod quorum;
pub mod server;
pub(crate) mod survey;
pub mod wire;

use std::time::Duration;

use crate::report::Diagnostic;
use crate::rules::{
    Answer, Asked, Failure, Id, Instant, Key, Listing, Name, Operator, Outcome, Pattern, Prefix,
    Release, Removal, Renewal, Request, Revocation, Token, Ttl, Verdict, View, show,
};
pub use crate::system::poll::{Interrupt, NEVER};
pub(crate) use wire::any_server_has_answered;

/// How many I/O timeouts a request takes at most that needs several calls, or must wait for a
/// thousand processes. Each call cleans up 100 expired holds or waiters, or revokes 50 holds.
const PATIENCE: u32 = 5;

/// Repeats `ask`, as `until_decided` does, until it returns an answer. Each call gets a larger
/// attempt number.
fn decided(
    timeout: Duration,
    mut ask: impl FnMut(u64) -> Result<Verdict, Failure>,
) -> Result<Answer, Failure> {
    until_decided(timeout, || match ask(attempt_number())? {
        Verdict::Answer(answer) => Ok(Some(answer)),
        Verdict::Again => Ok(None),
        Verdict::AheadOfClock { ahead, .. } => {
            let ahead = show(ahead);
            let what = format!("last fencing token is {ahead} ahead of the server's clock");
            Err(Failure::misconfigured(what, "check the clock (see man rlock)"))
        }
    })
}

/// The number of an attempt that begins now: the microseconds since boot, which exceed the numbers
/// of all earlier attempts on this host.
fn attempt_number() -> u64 {
    Instant::now().since_boot().as_micros().try_into().unwrap_or(u64::MAX)
}

/// Repeats `ask` until something is decided. No call begins after the timeout.
fn until_decided<T>(
    timeout: Duration,
    mut ask: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let until = Instant::now() + timeout;
    loop {
        match ask()? {
            Some(decided) => return Ok(decided),
            None if Instant::now() < until => {}
            // They have done a part of the work, unless the lock is damaged or the server is hostile.
            None => {
                let what = format!("no decision within {}", show(timeout));
                return Err(Failure::unavailable(what, "try again shortly"));
            }
        }
    }
}

/// Which locks to list: those that are not free, whose keys start with the prefix and whose names
/// match the pattern.
#[derive(Clone)]
pub struct Filter {
    pub prefix: Prefix,
    pub pattern: Option<Pattern>,
    /// Also those that are free and still remembered, and the latest hold in the history of each.
    pub with_free: bool,
}

impl Filter {
    pub(crate) fn passes(&self, name: &Name) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(name.as_str()))
    }
}

/// How to revoke, and who does it.
#[derive(Clone)]
pub struct Force {
    pub how: Revocation,
    pub by: Operator,
}

/// Keeps locks. Every implementation decides requests as the scripts in `lua/` do. The model in
/// `rules::model` is the same algorithm in Rust.
///
/// These rules hold for every method:
///
/// - Each call returns within the I/O timeout that the store was opened with, or when its interrupt
///   becomes readable or its moment comes. `sleep` may take `at_most` longer. A store may ask several servers in turn or
///   page through long lists, and then the timeout bounds each step. `PATIENCE` bounds them all if a
///   request needs several calls, and on one host the wait for other processes that change the same
///   lock.
/// - A lease counts by the store's clock from when the request arrives there. Its holder counts from
///   before it sent the request, so it stops earlier.
/// - A call may be repeated after a failure. A hold is identified by its token, so a repetition does
///   not acquire, release or renew anything twice.
/// - After a failure that may have taken effect (`Failure::maybe_executed`), `withdraw` undoes a
///   request. A copy of that request that arrives later must have no effect.
pub trait Store: Send {
    /// Asks for a lock, or asks again while waiting for it. A waiter asks again at the latest after
    /// the `sleep` of the last answer. A request with a heartbeat is queued if the lock is not
    /// free, and forgotten if the waiter does not ask again in time.
    fn acquire(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<Answer, Failure>;

    /// Sleeps until a queued request may have been granted, but no longer than `at_most`. It may
    /// return early for any reason, and then returns `None`: ask now. To save a round trip, a store
    /// may ask again itself, as `acquire` does, and return the answer.
    fn sleep(
        &mut self,
        request: &Request,
        at_most: Duration,
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

    /// Withdraws a request: afterward it is neither queued nor granted, and its token is refused.
    /// This is sent even if the moment of the interrupt has passed, which only ends the wait for a
    /// reply.
    fn withdraw(&mut self, request: &Request, interrupt: Interrupt<'_>) -> Result<(), Failure>;

    /// Withdraws a request without awaiting the reply: for a server that has not answered, which
    /// would only delay the end again.
    fn withdraw_blind(&mut self, request: &Request);

    /// Revokes all current holds, and returns the lock as it was before, with only the holders that
    /// it revoked. Waiters and the fencing token stay as they are.
    ///
    /// A repetition revokes no later hold than the first call, and returns what either revoked.
    fn revoke(&mut self, key: &Key, force: &Force) -> Result<View, Failure>;

    /// Revokes one hold, or removes one waiter. A holder learns of it from its next renewal, and a
    /// waiter at once.
    fn remove(&mut self, key: &Key, id: &Id, force: &Force) -> Result<Removal, Failure>;

    /// The lock as it is now, with its holders, waiters and history. It changes nothing.
    fn inspect(&mut self, key: &Key) -> Result<View, Failure>;

    /// The same, but fails if it may be wrong because the clients use another directory, or the master
    /// that this replica has lost. So does `list`. `before_hazards` saves `hazards` a round trip.
    fn inspect_verified(&mut self, key: &Key, _before_hazards: bool) -> Result<View, Failure> {
        self.inspect(key)
    }

    /// All locks that pass this filter. A lock that cannot be read does not hide the others.
    fn list(&mut self, filter: &Filter) -> Result<Listing, Failure>;

    /// The names of locks that are in use or remembered, as many as can be found until this moment.
    fn names(&mut self, prefix: &Prefix, until: Instant) -> Vec<Name>;

    /// Warnings about server settings that can lose locks, one line each.
    fn hazards(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Messages since the last call besides the answers, such as one about a failover.
    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        Vec::new()
    }
}
