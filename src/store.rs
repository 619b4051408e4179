//! Where locks are kept: what every kind of server can do, and in which words it answers.
//!
//! Nothing outside this module knows which kind it talks to, nor what it talks.

mod local;
pub(crate) mod location;
mod model;
mod open;
mod pause;
mod quorum;
mod server;
mod wire;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::duration::{Ttl, show};
use crate::lock::pattern::Pattern;
use crate::lock::view::{Holder, Outcome, Reason, View};
use crate::lock::{Fence, Key, Mode, Name, Owner, Prefix, Token};
use crate::report::Diagnostic;
use crate::system::clock::Instant;

/// Cuts an exchange short when it becomes readable.
pub(crate) type Interrupt<'a> = Option<BorrowedFd<'a>>;

/// A request for a lock. The token makes it the same request however often it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) mode: Mode,
    pub(crate) ttl: Ttl,
    /// For how long from the grant the lock is kept, even if it is released sooner.
    pub(crate) at_least: Duration,
    /// Chosen by the user; else it is that of the enclosing hold, or `fresh_owner`.
    pub(crate) owner: Option<Owner>,
    pub(crate) fresh_owner: Owner,
    /// The holds of this lock that the request comes from inside of, the innermost last. Some of
    /// them may be over.
    pub(crate) enclosing: Vec<Token>,
    /// May it enter what its owner holds already?
    pub(crate) reentrant: bool,
    /// How often a waiter tells that it is alive; `None` for one who does not wait.
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) client: String,
    /// What the fence is to be, if the server has not given away a larger one. For a lock that is
    /// on several servers.
    pub(crate) fence: Option<Fence>,
}

/// A holder that a waiter was told of.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) holder: Holder,
    /// The life of the lock then.
    pub(crate) life: String,
    /// For how long it may still be at work.
    pub(crate) left: Duration,
}

/// What a server makes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Answer(Answer),
    /// Nothing is decided yet; to be asked again at once, as another attempt.
    Again,
    /// The last fence is so far ahead of the server's clock that it is not believed.
    FenceAhead(Duration),
}

/// Asks until there is an answer, each time as another attempt: the time since boot makes it larger
/// than that of any process of this host before.
fn decided(mut ask: impl FnMut(u64) -> Result<Verdict, Failure>) -> Result<Answer, Failure> {
    loop {
        match ask(Instant::now().micros_since_boot())? {
            Verdict::Answer(answer) => return Ok(answer),
            Verdict::Again => {}
            Verdict::FenceAhead(ahead) => {
                let what = format!(
                    "last fencing token is {} ahead of the server's clock; check the clock (see \
                     'Fencing token ahead' in the README)",
                    show(ahead)
                );
                return Err(Failure::Misconfigured { what, executed: false });
            }
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted {
        fence: Fence,
    },
    /// Somebody else has it, and the request was not to wait.
    Busy(View),
    /// It would wait for the hold that it comes from inside of.
    Nested,
    /// Exclusive inside of its owner's shared hold, which can never be.
    Upgrade,
    /// The token was released, or the request given up.
    Over(Reason),
    /// Nobody has it, because several have asked at once: to be asked again after a pause.
    Split {
        pause: Duration,
    },
    /// In line; ask again after `sleep`, or when woken.
    Queued {
        view: View,
        /// From 1; `None` where nobody keeps an order.
        position: Option<u64>,
        sleep: Duration,
    },
}

/// What came of a renewal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The lease expires after `left`, which is longer than asked for if it was to last longer
    /// before.
    Renewed {
        fence: Fence,
        left: Duration,
    },
    NotHeld(Reason),
}

/// How holders lose a lock that is taken away from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revocation {
    /// They are told, and keep others out until they have let go or their leases have ended.
    WhenGone,
    /// At once, for holders that are known to be dead, and for another tool's lock.
    Now,
}

/// What came of a release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Release {
    Released,
    NotHeld(Reason),
    /// Not held when asked again after a lost reply: released the first time, most likely.
    Unknown,
}

/// A lock in a list, or why there is nothing to say of it.
pub(crate) type Listed = (Name, Result<View, Failure>);

/// The locks that could be seen, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) locks: Vec<Listed>,
    /// Why others could not, one for each server that has some.
    pub(crate) unseen: Vec<Failure>,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// No connection, or it broke, or nothing came in time.
    Unreachable { what: String, fate: Fate },
    /// A server answers, but the lock cannot be had from it now: it is loading, out of memory, busy
    /// with a script, too young to vote, or one of too few.
    Unavailable(String),
    /// A server answers with more than any lock takes.
    TooLarge(String),
    /// It will not work until somebody changes something. It was carried out all the same where a
    /// server without a password was given one, or one that lets strangers in a wrong one.
    Misconfigured { what: String, executed: bool },
    /// It was carried out, but too few replicas have it to count.
    Unconfirmed(String),
    /// The interrupt came first. What was sent by then may have been carried out.
    Interrupted { sent: bool },
}

/// What became of a request that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It never reached the server.
    NotSent,
    /// The connection broke after it was sent: it may have been carried out or not.
    Lost,
    /// The server has it, but has not answered in time: it may still be carried out.
    Pending,
}

impl Failure {
    /// May it be over without anybody's doing, so that trying again is worth it?
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unavailable(_))
    }

    /// Has no server answered at all?
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// May the server have carried out the request, and only the answer be missing?
    pub(crate) fn maybe_executed(&self) -> bool {
        match self {
            Self::Unreachable { fate, .. } => *fate != Fate::NotSent,
            Self::Interrupted { sent } => *sent,
            Self::Misconfigured { executed, .. } => *executed,
            Self::Unavailable(_) => false,
            Self::TooLarge(_) => true,
            Self::Unconfirmed(_) => true,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { what, .. }
            | Self::Unavailable(what)
            | Self::TooLarge(what)
            | Self::Unconfirmed(what)
            | Self::Misconfigured { what, .. } => f.write_str(what),
            Self::Interrupted { .. } => f.write_str("interrupted"),
        }
    }
}

/// A place where locks are kept. Every call is bounded by the I/O timeout the store was opened
/// with, and by its interrupt.
pub(crate) trait Store: Send {
    /// Asks for the lock, or asks again. The holders that the caller has seen last let a server
    /// that has forgotten them since keep everybody out until they surely know.
    fn acquire(
        &mut self,
        request: &Request,
        seen: &[Seen],
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure>;

    /// Is a request that was not granted remembered, so that asking again with the same token takes
    /// up its place? If not, each attempt needs a token of its own: what was said about the last
    /// one may still be under way.
    fn keeps_places(&self) -> bool {
        true
    }

    /// Sleeps until a queued request may have been granted, or for `at_most`.
    fn sleep(
        &mut self,
        request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Failure>;

    /// Makes the hold last for `ttl` from now, or for as long as its lease was.
    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Option<Ttl>,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure>;

    /// Ends the hold. What came of its command is kept for those who ask later.
    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure>;

    /// Takes a request back: afterwards it is neither queued nor granted.
    fn leave(&mut self, request: &Request) -> Result<View, Failure>;

    /// Takes the lock away from all who have it, and returns it as it was before. `by` is who does
    /// that, for those who ask later.
    fn revoke(&mut self, key: &Key, revocation: Revocation, by: &str) -> Result<View, Failure>;

    /// One lock as it is now, and what became of its last holds.
    fn inspect(&mut self, key: &Key) -> Result<View, Failure>;

    /// All locks under a prefix that are held by anybody and match. One that cannot be read does not
    /// hide the others.
    fn list(&mut self, prefix: &Prefix, pattern: Option<&Pattern>) -> Result<Listing, Failure>;

    /// What about the servers may cost locks, for an operator to mend.
    fn hazards(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Which server has said what since the last call, where that is not plain.
    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        Vec::new()
    }
}
