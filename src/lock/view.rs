//! A lock as people see it: who holds it, who waits for it, since when.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use crate::duration::show;
use crate::lock::{ClientInfo, Fence, Mode};
use crate::text::printable;

/// A moment on the server's clock, in milliseconds since the epoch: for showing, never for
/// deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerTime(pub(crate) u64);

impl ServerTime {
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for ServerTime {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for ServerTime {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(rhs.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// One hold, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The first 8 characters of the token.
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) mode: Mode,
    pub(crate) client: ClientInfo,
    pub(crate) fence: Fence,
    pub(crate) acquired: ServerTime,
    pub(crate) renewed: ServerTime,
    pub(crate) deadline: ServerTime,
    pub(crate) standing: HoldState,
}

/// How a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HoldState {
    Held,
    /// Its holder does not hold the lock any more, but may not know yet.
    Revoked,
    /// Its holder has let go, sooner than the lock was to be kept.
    Cooling,
}

/// One place in the queue, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    /// The first 8 characters of the token it will hold the lock with.
    pub(crate) id: String,
    pub(crate) mode: Mode,
    pub(crate) client: ClientInfo,
    pub(crate) since: ServerTime,
}

/// What became of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HistoryEntry {
    pub(crate) ending: Ending,
    pub(crate) at: ServerTime,
    pub(crate) outcome: Outcome,
    /// The first 8 characters of the token.
    pub(crate) id: String,
    pub(crate) acquired: ServerTime,
    pub(crate) fence: Fence,
    pub(crate) mode: Mode,
    /// Who took it away, if it was revoked and anybody said.
    pub(crate) by: Option<String>,
    pub(crate) client: ClientInfo,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ending {
    Released,
    Expired,
    /// By an operator.
    Revoked,
    /// Its key was deleted.
    Deleted,
    /// Another tool has written its key.
    Overwritten,
    /// The server had lost it; a waiter remembered it.
    Forgotten,
    /// Its holder could not renew it in time and has stopped the command.
    Lost,
}

impl Ending {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Deleted => "deleted",
            Self::Overwritten => "overwritten",
            Self::Forgotten => "forgotten",
            Self::Lost => "lost",
        }
    }
}

impl TryFrom<&str> for Ending {
    type Error = ();

    /// As it is kept, which is what `name` says.
    fn try_from(text: &str) -> Result<Self, Self::Error> {
        let all = [
            Self::Released,
            Self::Expired,
            Self::Revoked,
            Self::Deleted,
            Self::Overwritten,
            Self::Forgotten,
            Self::Lost,
        ];
        all.into_iter().find(|ending| ending.name() == text).ok_or(())
    }
}

/// Why a token does not hold the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// `None` if the server has no record of it.
    ending: Option<Ending>,
    ago: Option<Duration>,
    by: Option<String>,
}

impl Reason {
    /// `by` is empty if nobody is known to have done it.
    pub(crate) fn new(ending: Option<Ending>, ago: Option<Duration>, by: &str) -> Self {
        Self { ending, ago, by: Some(printable(by)).filter(|by| !by.is_empty()) }
    }

    /// What it says if nothing is known.
    pub(crate) fn unknown() -> Self {
        Self::new(None, None, "")
    }

    /// Has the server a record of it?
    pub(crate) fn is_known(&self) -> bool {
        self.ending.is_some()
    }

    /// Was the hold released by its holder?
    pub(crate) fn is_released(&self) -> bool {
        self.ending == Some(Ending::Released)
    }
}

impl fmt::Display for Reason {
    /// What happened to "the lock", the subject: "was revoked by ana@ci-3 5s ago".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.ending {
            Some(Ending::Expired) => "expired",
            Some(Ending::Released | Ending::Lost) => "was released",
            Some(Ending::Revoked) => "was revoked",
            Some(Ending::Deleted) => "was deleted",
            Some(Ending::Overwritten) => "was overwritten by another tool",
            Some(Ending::Forgotten) | None => return f.write_str("was forgotten by the server"),
        })?;
        if let Some(by) = &self.by {
            write!(f, " by {by}")?;
        }
        match self.ago {
            // What is known of these is when it was noticed.
            _ if matches!(self.ending, Some(Ending::Deleted | Ending::Overwritten)) => Ok(()),
            Some(ago) => write!(f, " {} ago", show(ago)),
            None => Ok(()),
        }
    }
}

/// What came of the command that ran under a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nobody said, or there was none.
    Unknown,
    Exit(u8),
    Signal(i32),
    /// It was stopped because its lock was lost.
    Lost,
}

impl fmt::Display for Outcome {
    /// As it is kept; nothing if it is unknown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::Exit(status) => write!(f, "exit {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Lost => f.write_str("lost"),
        }
    }
}

impl From<&str> for Outcome {
    fn from(text: &str) -> Self {
        match text.split_once(' ') {
            None if text == "lost" => Self::Lost,
            Some(("exit", status)) => status.parse().map_or(Self::Unknown, Self::Exit),
            Some(("signal", signal)) => signal.parse().map_or(Self::Unknown, Self::Signal),
            _ => Self::Unknown,
        }
    }
}

/// Whether a lock is held, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Free,
    Held,
    /// Its holders do not hold it any more, but may not know yet: until they have let go or their
    /// leases have ended, nobody else gets it.
    Revoked,
    /// All of them have let go, but sooner than the lock is to be kept.
    Cooling,
    /// The key is there, but it is not ours: another tool's lock.
    Foreign,
}

/// A lock as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) now: ServerTime,
    pub(crate) state: State,
    /// Of the holds as a whole, if there are any.
    pub(crate) mode: Option<Mode>,
    /// Until the lock frees itself; `None` when it is free, or foreign without an expiry.
    pub(crate) ttl: Option<Duration>,
    pub(crate) fence: Option<Fence>,
    /// A random mark that a server loses together with its data; empty if the lock was never held.
    pub(crate) life: String,
    /// How many there are; `holders` may be only the first of them.
    pub(crate) holder_count: u64,
    pub(crate) holders: Vec<Holder>,
    /// How many there are, some of them dead perhaps; `waiters` has the live ones if asked for.
    pub(crate) waiter_count: u64,
    pub(crate) waiters: Vec<Waiter>,
    /// What became of the last holds, the latest last, if asked for.
    pub(crate) history: Vec<HistoryEntry>,
}

impl View {
    /// What to add to a message for somebody who asked in a mode in which he could not join the
    /// holders in any case, if that may not be what he thinks.
    pub(crate) fn mismatch(&self, asked: Mode) -> String {
        let how = |mode: Mode| match mode {
            Mode::Exclusive => "exclusively".to_owned(),
            Mode::Shared => "with --shared".into(),
            Mode::Slots(slots) => format!("with --slots {slots}"),
        };
        match (self.mode, asked) {
            // A writer behind readers is as it should be.
            (Some(Mode::Shared), Mode::Exclusive) | (Some(Mode::Exclusive), Mode::Shared) => {
                String::new()
            }
            (Some(theirs), ours) if theirs != ours => {
                format!("; held {}, but requested {}", how(theirs), how(ours))
            }
            // It could join, but for those who came first.
            (Some(Mode::Shared | Mode::Slots(_)), _) if self.waiter_count > 0 => {
                format!("; {} already waiting", self.waiter_count)
            }
            _ => String::new(),
        }
    }
}

impl fmt::Display for View {
    /// Who has the lock, for a message: `held by ana@ci-3 pid 4242 (make) for 2m13s, label https://…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.holders.first() else {
            return match (self.state, self.ttl) {
                (State::Foreign, Some(ttl)) => {
                    write!(f, "held by another tool, whose key expires in {}", show(ttl))
                }
                (State::Foreign, None) => {
                    f.write_str("held by another tool, whose key has no expiry")
                }
                _ if self.waiter_count > 0 => {
                    f.write_str("about to be granted to an earlier waiter")
                }
                _ => f.write_str("now free"),
            };
        };
        let how = match self.mode {
            Some(Mode::Shared) => "shared by",
            _ => "held by",
        };
        write!(f, "{how} {} for {}", first.client, show(self.now.since(first.acquired)))?;
        if let Some(label) = first.client.label() {
            write!(f, ", label {label}")?;
        }
        match self.holder_count.saturating_sub(1) {
            0 => {}
            others => write!(f, ", and {others} more")?,
        }
        if let Some(Mode::Slots(slots)) = self.mode {
            write!(f, " (of {slots} slots)")?;
        }
        let end = show(self.ttl.unwrap_or_default());
        match self.state {
            State::Revoked => write!(f, "; revoked, free within {end}"),
            State::Cooling => write!(f, "; released, but kept for another {end}"),
            _ => Ok(()),
        }
    }
}
