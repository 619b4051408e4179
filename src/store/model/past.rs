//! What became of the last holds of a lock.

use super::moment::{LAST, Moment};
use super::view::id;
use super::{Ended, Hold};
use crate::lock::view::{Ending, HistoryEntry, HoldState, Outcome, ServerTime};
use crate::lock::{ClientInfo, Fence};
use crate::text::printable;

impl Moment<'_> {
    /// What became of the last holds; those too that have ended since anything was written.
    pub(super) fn past(&self) -> Vec<HistoryEntry> {
        let known = self.lock.written.is_some();
        let mut expired: Vec<&Hold> =
            self.lock.holds.iter().filter(|hold| known && hold.deadline < self.now).collect();
        expired.sort_by_key(|hold| (hold.deadline, &hold.token));
        let surplus = expired.len().saturating_sub(LAST);
        let expired = expired.drain(surplus..).filter_map(|hold| self.expired(hold));
        self.lock.past.iter().cloned().chain(expired).map(HistoryEntry::from).collect()
    }

    /// What the record has of a token.
    pub(super) fn recorded(&self, token: &str) -> Option<&Ended> {
        let id = id(token);
        self.lock.past.iter().rev().find(|past| past.id == id)
    }

    pub(super) fn record_is_full(&self) -> bool {
        self.lock.past.len() >= LAST
    }

    /// The line for the record about a hold that is released now, if it is not there yet.
    pub(super) fn line_about_released(&self, token: &str, outcome: Outcome) -> Option<Ended> {
        let hold = self.lock.holds.iter().find(|hold| hold.token == token)?;
        let (ending, by) = match (self.ending_of(hold)?, outcome) {
            ((Ending::Expired, by), Outcome::Lost) => (Ending::Lost, by),
            ((Ending::Expired, by), _) => (Ending::Released, by),
            (revoked, _) => revoked,
        };
        Some(Ended::of(hold, ending, self.now, outcome, by))
    }

    pub(super) fn record(&mut self, ended: Ended) {
        self.lock.past.push(ended);
        let surplus = self.lock.past.len().saturating_sub(LAST);
        self.lock.past.drain(..surplus);
    }

    /// Puts those on record that have ended at their deadlines, the earliest first.
    pub(super) fn record_expired(&mut self, expired: &[Hold]) {
        let surplus = expired.len().saturating_sub(LAST);
        for hold in &expired[surplus..] {
            if let Some(ended) = self.expired(hold) {
                self.record(ended);
            }
        }
    }

    fn expired(&self, hold: &Hold) -> Option<Ended> {
        let (ending, by) = self.ending_of(hold)?;
        Some(Ended::of(hold, ending, hold.deadline, Outcome::Unknown, by))
    }

    /// How a hold ends that is not released, and by whom. One that cools was, and is on record.
    fn ending_of(&self, hold: &Hold) -> Option<(Ending, String)> {
        match (hold.standing, self.standing(hold)) {
            (HoldState::Cooling, _) => None,
            (HoldState::Revoked, _) => Some((Ending::Forgotten, String::new())),
            (HoldState::Held, HoldState::Revoked) => {
                let (how, by, _) = self.revocation();
                Some((how, by))
            }
            (HoldState::Held, _) => Some((Ending::Expired, String::new())),
        }
    }
}

impl Ended {
    pub(super) fn of(hold: &Hold, ending: Ending, at: u64, outcome: Outcome, by: String) -> Self {
        Self {
            ending,
            at,
            outcome: outcome.to_string(),
            id: id(&hold.token),
            acquired: hold.acquired,
            fence: hold.fence,
            mode: hold.mode,
            by,
            about: hold.about.clone(),
        }
    }
}

impl From<Ended> for HistoryEntry {
    fn from(ended: Ended) -> Self {
        Self {
            ending: ended.ending,
            at: ServerTime(ended.at),
            outcome: ended.outcome.as_str().into(),
            id: printable(&ended.id),
            acquired: ServerTime(ended.acquired),
            fence: Fence(ended.fence),
            mode: ended.mode,
            by: Some(ended.by).filter(|by| !by.is_empty()).map(|by| printable(&by)),
            client: ClientInfo::from_lines(&ended.about),
        }
    }
}
