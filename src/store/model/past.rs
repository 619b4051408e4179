//! What became of the last holds of a lock.

use super::moment::Moment;
use super::view::id;
use super::{Ended, Hold};
use crate::lock::{About, Fence};
use crate::view::{Ending, Outcome, Past, ServerTime, Standing};

/// Of the past, so many holds are kept.
const LAST: usize = 16;

impl Moment<'_> {
    /// What became of the last holds; those too that have ended since anything was written.
    pub(super) fn past(&self) -> Vec<Past> {
        let known = self.lock.written.is_some();
        let mut expired: Vec<&Hold> =
            self.lock.holds.iter().filter(|hold| known && hold.deadline < self.now).collect();
        expired.sort_by_key(|hold| (hold.deadline, &hold.token));
        let expired = expired.into_iter().filter_map(Ended::expired);
        self.lock.past.iter().cloned().chain(expired).map(Past::from).collect()
    }

    /// Is it on record that this one was released or taken away?
    pub(super) fn is_past(&self, token: &str) -> bool {
        let id: String = token.chars().take(8).collect();
        self.lock.past.iter().any(|past| past.id == id && past.ending != Ending::Expired)
    }

    /// Puts a hold on record that is let go of now.
    pub(super) fn note(&mut self, token: &str, outcome: Outcome) {
        let Some(hold) = self.lock.holds.iter().find(|hold| hold.token == token) else { return };
        let ending = match (hold.standing, outcome) {
            (Standing::Cooling, _) => return,
            (Standing::Revoked, _) => Ending::Revoked,
            (Standing::Held, Outcome::Lost) => Ending::Lost,
            (Standing::Held, _) => Ending::Released,
        };
        self.record(Ended::of(hold, ending, self.now, outcome));
    }

    pub(super) fn record(&mut self, ended: Ended) {
        self.lock.past.push(ended);
        let surplus = self.lock.past.len().saturating_sub(LAST);
        self.lock.past.drain(..surplus);
    }

    /// Puts those on record that have ended at their deadlines.
    pub(super) fn record_expired(&mut self, mut expired: Vec<Hold>) {
        expired
            .sort_by(|one, other| (one.deadline, &one.token).cmp(&(other.deadline, &other.token)));
        let surplus = expired.len().saturating_sub(LAST);
        for hold in &expired[surplus..] {
            if let Some(ended) = Ended::expired(hold) {
                self.record(ended);
            }
        }
    }
}

impl Ended {
    /// A hold that nobody has released until its deadline; one that cools was, and is on record.
    pub(super) fn expired(hold: &Hold) -> Option<Self> {
        let ending = match hold.standing {
            Standing::Held => Ending::Expired,
            Standing::Revoked => Ending::Revoked,
            Standing::Cooling => return None,
        };
        Some(Self::of(hold, ending, hold.deadline, Outcome::Unknown))
    }

    pub(super) fn of(hold: &Hold, ending: Ending, at: u64, outcome: Outcome) -> Self {
        Self {
            ending,
            at,
            outcome: outcome.to_string(),
            id: id(&hold.token),
            acquired: hold.acquired,
            fence: hold.fence,
            mode: hold.mode,
            by: hold.by.clone(),
            about: hold.about.clone(),
        }
    }
}

impl From<Ended> for Past {
    fn from(ended: Ended) -> Self {
        Self {
            ending: ended.ending,
            at: ServerTime(ended.at),
            outcome: ended.outcome.as_str().into(),
            id: ended.id,
            acquired: ServerTime(ended.acquired),
            fence: Fence(ended.fence),
            mode: ended.mode,
            by: Some(ended.by).filter(|by| !by.is_empty()),
            about: About::from_lines(&ended.about),
        }
    }
}
