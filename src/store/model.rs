//! The lock model as a pure function of a lock's state, a request and the time: what the scripts of
//! `lua/` do on a server, once more in Rust. It is the engine of `local:`, and the reference that
//! random histories hold the scripts against.
//!
//! All times are milliseconds since the epoch. As in the scripts, a hold lives through the
//! millisecond of its deadline.

mod admission;
#[cfg(test)]
mod histories;
mod holds;
mod moment;
mod over;
mod past;
mod requests;
mod snapshot;
mod view;

use serde::{Deserialize, Serialize};

use moment::Moment;
pub(super) use snapshot::Snapshot;

use super::{Release, Renewal, Request, Revocation, Seen, Verdict};
use crate::duration::Ttl;
use crate::lock::view::{Ending, HoldState, Outcome, View};
use crate::lock::{Mode, Token};

/// Everything about one lock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Lock {
    /// What stands for the lock where other tools look.
    guard: Option<Guard>,
    /// The guard as rlock has written it last.
    written: Option<String>,
    /// Of the holds as a whole.
    mode: Option<Mode>,
    /// The last one granted, in microseconds since the epoch or later.
    fence: u64,
    /// Random; a lock that was forgotten has another one.
    #[serde(default)]
    life: String,
    holds: Vec<Hold>,
    /// First come, first served.
    queue: Vec<Place>,
    /// The waiter that knows it is the head of the queue.
    #[serde(default)]
    told: Option<String>,
    /// Revokes all holds up to a fence.
    #[serde(default)]
    revocation: Revoked,
    /// What became of the last holds, the latest last.
    #[serde(default)]
    past: Vec<Ended>,
    /// Tokens that were released or given up.
    #[serde(default)]
    over: Vec<Mark>,
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
    /// Whether a user has chosen the owner's name, so that it can enter from anywhere.
    #[serde(default)]
    named: bool,
    mode: Mode,
    about: String,
    fence: u64,
    acquired: u64,
    renewed: u64,
    deadline: u64,
    /// Until when it is kept even if it is released; 0 if it need not be.
    keep: u64,
    /// The length of its lease.
    #[serde(default)]
    ttl: u64,
    /// The number of the request that got it.
    #[serde(default)]
    attempt: u64,
    /// `Revoked` only if it was reinstated; others are so by the revocation.
    standing: HoldState,
}

/// All holds up to a fence are revoked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Revoked {
    floor: u64,
    how: Option<Ending>,
    /// Who did it, if anybody.
    by: String,
    at: u64,
}

/// A request with this token is refused until then.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mark {
    token: String,
    until: u64,
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
    #[serde(default)]
    named: bool,
    mode: Mode,
    about: String,
    since: u64,
    /// Until when it is believed to be alive.
    alive: u64,
    /// May it enter what its owner holds?
    reentrant: bool,
    #[serde(default)]
    ttl: u64,
    #[serde(default)]
    attempt: u64,
}

/// The times by which a hold or a place in the queue ends, to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times([u64; 3]);

impl Lock {
    /// Asks for the lock, or asks again: `attempt` is larger each time.
    pub(super) fn acquire(
        &mut self,
        request: &Request,
        attempt: u64,
        seen: &[Seen],
        now: u64,
    ) -> Verdict {
        Moment::of(self, now).acquire(request, attempt, seen)
    }

    /// Makes a hold last for `ttl` from now, or for as long as it was to last before.
    pub(super) fn renew(&mut self, token: &Token, ttl: Option<Ttl>, now: u64) -> Renewal {
        Moment::of(self, now).renew(token.as_str(), ttl.map(Ttl::as_millis))
    }

    /// Ends a hold, or lets it cool.
    pub(super) fn release(&mut self, token: &Token, outcome: Outcome, now: u64) -> Release {
        Moment::of(self, now).release(token.as_str(), outcome)
    }

    /// Takes a request back.
    pub(super) fn leave(&mut self, token: &Token, ttl: Ttl, now: u64) -> View {
        Moment::of(self, now).leave(token.as_str(), ttl.as_millis())
    }

    /// Revokes all holds, and returns the lock as it was before.
    pub(super) fn revoke(&mut self, revocation: Revocation, by: &str, now: u64) -> View {
        Moment::of(self, now).revoke(revocation, by)
    }

    /// Shows the lock with everybody who holds it or waits for it.
    pub(super) fn inspect(&self, now: u64) -> View {
        // On a copy, since an expired guard is dropped even by a look.
        let mut copy = self.clone();
        let moment = Moment::of(&mut copy, now);
        View { history: moment.past(), ..moment.view(0, usize::MAX, true) }
    }

    /// Moves the times by which each hold and each place in the queue ends onto another clock, by
    /// what `by` says for its token. When they began is for people, and stays.
    pub(super) fn shift(&mut self, by: impl Fn(&str) -> i64) {
        for hold in &mut self.holds {
            let by = by(&hold.token);
            for time in [&mut hold.renewed, &mut hold.deadline] {
                *time = time.saturating_add_signed(by);
            }
            if hold.keep > 0 {
                hold.keep = hold.keep.saturating_add_signed(by);
            }
        }
        for place in &mut self.queue {
            let by = by(&place.token);
            place.alive = place.alive.saturating_add_signed(by);
        }
        let latest = self.holds.iter().map(|hold| hold.deadline).max();
        if let (Some(guard), Some(latest)) = (&mut self.guard, latest) {
            guard.until = Some(latest);
        }
    }

    /// The times that `shift` moves, by token.
    pub(super) fn times(&self) -> impl Iterator<Item = (&str, Times)> {
        let waiting =
            self.queue.iter().map(|place| (place.token.as_str(), Times([place.alive, 0, 0])));
        waiting.chain(
            self.holds
                .iter()
                .map(|hold| (hold.token.as_str(), Times([hold.renewed, hold.deadline, hold.keep]))),
        )
    }

    /// Is there something to stand for the lock where other tools look?
    pub(super) fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// Somebody has deleted what stood for the lock.
    pub(super) fn lose_guard(&mut self) {
        self.guard = None;
    }

    /// Forgets all but the last few tokens that are over. Where requests cannot arrive late, those
    /// only serve to say what became of a hold.
    pub(super) fn forget_marks(&mut self) {
        const KEPT: usize = 64;
        let surplus = self.over.len().saturating_sub(KEPT);
        self.over.drain(..surplus);
    }

    /// The waiters that have been given a reason to ask again since the last call.
    pub(super) fn take_woken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.woken)
    }

    /// Was all that held the lock or waited for it over before `moment`?
    pub(super) fn is_unused_since(&self, moment: u64) -> bool {
        self.holds.iter().all(|hold| hold.deadline < moment)
            && self.queue.iter().all(|place| place.alive < moment)
    }

    /// Who holds the lock or waits for it.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &str> {
        let waiting = self.queue.iter().map(|place| place.token.as_str());
        waiting.chain(self.holds.iter().map(|hold| hold.token.as_str()))
    }
}
