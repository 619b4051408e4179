//! The lock model as a pure function of a lock's state, a request and the time: what the scripts of
//! `lua/` do on a server, once more in Rust. It is the engine of `local:`, and the reference that
//! random histories hold the scripts against.
//!
//! All times are milliseconds since the epoch. As in the scripts, a hold lives through the
//! millisecond of its deadline.

mod admission;
#[cfg(test)]
mod histories;
mod moment;
mod past;
mod snapshot;
mod view;

use serde::{Deserialize, Serialize};

use moment::Moment;
pub(super) use snapshot::Snapshot;

use super::{Answer, Eviction, Release, Renewal, Request, Seen};
use crate::duration::Ttl;
use crate::lock::{Mode, Token};
use crate::view::{Ending, Outcome, Standing, View};

/// Everything about one lock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Lock {
    /// What stands for the lock where other tools look.
    guard: Option<Guard>,
    /// The guard as we have written it last.
    written: Option<String>,
    /// Of the holds as a whole.
    mode: Option<Mode>,
    /// The last one handed out.
    fence: u64,
    holds: Vec<Hold>,
    /// First come, first served.
    queue: Vec<Place>,
    /// What became of the last holds, the latest last.
    #[serde(default)]
    past: Vec<Ended>,
    /// Waiters that have something to look at since they were last taken.
    #[serde(skip)]
    woken: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Guard {
    value: String,
    until: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Hold {
    token: String,
    owner: String,
    mode: Mode,
    about: String,
    fence: u64,
    acquired: u64,
    renewed: u64,
    deadline: u64,
    /// Until when it is kept even if it is released; 0 if it need not be.
    keep: u64,
    standing: Standing,
    /// Who has revoked it, if anybody said.
    #[serde(default)]
    by: String,
}

/// A hold that is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ended {
    ending: Ending,
    at: u64,
    /// As `Outcome` is written.
    outcome: String,
    id: String,
    acquired: u64,
    fence: u64,
    mode: Mode,
    by: String,
    about: String,
}

/// A place in the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Place {
    token: String,
    owner: String,
    mode: Mode,
    about: String,
    since: u64,
    /// Until when it is believed to be alive.
    alive: u64,
    /// May it enter what its owner holds?
    reentrant: bool,
}

impl Lock {
    /// Asks for the lock, or asks again.
    pub(super) fn acquire(&mut self, request: &Request, seen: &[Seen], now: u64) -> Answer {
        Moment::of(self, now).acquire(request, seen)
    }

    /// Makes a hold last for `ttl` from now.
    pub(super) fn renew(&mut self, token: &Token, ttl: Ttl, now: u64) -> Renewal {
        Moment::of(self, now).renew(token.as_str(), ttl.as_millis())
    }

    /// Ends a hold, or lets it cool.
    pub(super) fn release(&mut self, token: &Token, outcome: Outcome, now: u64) -> Release {
        Moment::of(self, now).release(token.as_str(), outcome)
    }

    /// Takes a request back.
    pub(super) fn leave(&mut self, token: &Token, now: u64) -> View {
        Moment::of(self, now).leave(token.as_str())
    }

    /// Takes the lock away from all who have it, and returns it as it was before.
    pub(super) fn revoke(&mut self, eviction: Eviction, by: &str, now: u64) -> View {
        Moment::of(self, now).revoke(eviction, by)
    }

    /// Shows the lock with everybody who holds it or waits for it.
    pub(super) fn inspect(&self, now: u64) -> View {
        // On a copy, since an expired guard is dropped even by a look.
        let mut copy = self.clone();
        let moment = Moment::of(&mut copy, now);
        View { past: moment.past(), ..moment.view(usize::MAX, true) }
    }

    /// The same lock when all who held it or waited for it are surely gone.
    pub(super) fn after_a_reboot(self) -> Self {
        Self { fence: self.fence, past: self.past, ..Self::default() }
    }

    /// The waiters that have been given a reason to ask again since the last call.
    pub(super) fn take_woken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.woken)
    }

    /// Is there nothing to remember but the fence?
    pub(super) fn is_unused(&self) -> bool {
        self.holds.is_empty() && self.queue.is_empty()
    }

    /// Who holds the lock or waits for it.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &str> {
        let waiting = self.queue.iter().map(|place| place.token.as_str());
        waiting.chain(self.holds.iter().map(|hold| hold.token.as_str()))
    }
}
