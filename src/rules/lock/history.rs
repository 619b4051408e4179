//! The history of a lock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Record, Stored, stored};
use crate::rules::{ClientInfo, Ending, Fence, Mode, Operator, ServerTime, show, variant};
use crate::text::printable;

/// An entry in the history of a lock: how a hold ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HistoryEntry {
    pub ending: Ending,
    pub at: ServerTime,
    pub outcome: Outcome,
    /// The first 8 characters of the token.
    pub id: String,
    pub acquired: ServerTime,
    /// How long its holder waited for the grant, if known.
    pub waited: Option<Duration>,
    pub fence: Fence,
    pub mode: Mode,
    pub operator: Operator,
    pub client: ClientInfo,
}

impl HistoryEntry {
    /// The entry in a record; `None` if it ended in a way that only later versions know.
    pub(crate) fn of(record: &Record<'_>) -> Option<Self> {
        Some(Self {
            ending: variant(record.get("ended"))?,
            at: record.time("at"),
            outcome: record.get("outcome").into(),
            id: printable(record.get("id")),
            acquired: record.time("acquired"),
            waited: record.waited(),
            fence: Fence(record.number("fence")),
            mode: record.mode().unwrap_or_default(),
            operator: Operator::from_stored(record.get("by")),
            client: ClientInfo::of(record),
        })
    }

    /// How a hold with this deadline ended that was revoked: its holder released it after its command
    /// had ended, or its lease expired first. `None` if a script or an operator
    /// ended it sooner.
    pub(crate) fn ending_of_revoked(&self, deadline: ServerTime) -> Option<Ending> {
        // From one view to the next, the clocks of several servers differ by a little.
        let is_over = self.at + Duration::from_millis(100) >= deadline;
        match self.outcome {
            Outcome::Unknown => is_over.then_some(Ending::Expired),
            _ => Some(Ending::Released),
        }
    }

    /// Whether it was released, and its command did not fail as far as known.
    pub(crate) fn ended_well(&self) -> bool {
        self.ending == Ending::Released
            && matches!(self.outcome, Outcome::Unknown | Outcome::Exit(0))
    }
}

impl From<HistoryEntry> for String {
    /// A record; see `lua/history.lua`.
    fn from(entry: HistoryEntry) -> Self {
        let HistoryEntry { ending, at, outcome, id, acquired, waited, fence, mode, .. } = entry;
        let since = waited.map_or(Self::new(), |waited| (acquired - waited).0.to_string());
        let (at, acquired) = (at.0, acquired.0);
        let (by, client) = (entry.operator.to_stored(), entry.client.to_stored());
        let ended = format!("\nended {ending}\nat {at}\noutcome {outcome}\nby {by}");
        let held =
            format!("\nid {id}\nmode {mode}\nfence {fence}\nacquired {acquired}\nsince {since}");
        [ended, held, client].concat()
    }
}

/// The clients that were turned away because the lock was busy, since the last hold began.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Skipped {
    pub count: u64,
    /// When the last of them was, the first 8 characters of its token, and the client.
    pub at: ServerTime,
    pub id: String,
    #[serde(with = "stored")]
    pub client: ClientInfo,
}

impl Skipped {
    /// For people: `2 times, last 1h ago by ana@ci-4 pid 17 (make)`.
    pub(crate) fn shown(&self, now: ServerTime) -> String {
        let times = if self.count == 1 { "time" } else { "times" };
        let ago = show(now.since(self.at));
        format!("{} {times}, last {ago} ago by {}", self.count, self.client)
    }

    /// The clients in a record; `None` if there are none.
    pub(crate) fn of(record: &Record<'_>) -> Option<Self> {
        Some(Self {
            count: record.get("skipped").parse().ok()?,
            at: record.time("at"),
            id: printable(record.get("id")),
            client: ClientInfo::of(record),
        })
    }
}

/// How the command that ran under a hold ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Not reported, or there was no command.
    #[default]
    Unknown,
    Exit(u8),
    Signal(i32),
    /// rlock stopped it because the lock was lost.
    Lost,
    /// Nothing ran under the hold, so it has no minimum time.
    NotStarted,
}

impl fmt::Display for Outcome {
    /// Writes the form that stores keep; nothing if unknown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::Exit(status) => write!(f, "exit {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Lost => f.write_str("lost"),
            Self::NotStarted => f.write_str("not started"),
        }
    }
}

impl From<&str> for Outcome {
    fn from(text: &str) -> Self {
        match text.split_once(' ') {
            None if text == "lost" => Self::Lost,
            Some(("not", "started")) => Self::NotStarted,
            Some(("exit", status)) => status.parse().map_or(Self::Unknown, Self::Exit),
            Some(("signal", signal)) => signal.parse().map_or(Self::Unknown, Self::Signal),
            _ => Self::Unknown,
        }
    }
}
