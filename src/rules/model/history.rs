//! History: how the last holds ended, and who was turned away since the last one began.

use super::lock::Hold;
use super::transaction::Transaction;
use super::view::{id_of, waited};
use crate::rules::{
    ClientInfo, Ending, Fence, HistoryEntry, HoldState, Operator, Outcome, Record, ServerTime,
    Skipped, item,
};

/// How many holds the history keeps.
pub(super) const HISTORY_LENGTH: usize = 16;

/// Reads an entry; `None` if the hold ended in a way that only later versions know.
fn entry(text: &str) -> Option<HistoryEntry> {
    HistoryEntry::of(&Record::of(text))
}

impl Transaction<'_> {
    /// The entry for a hold that ends with this outcome of its command; `None` if there is none to
    /// add. `by` is given, instead of an outcome, if this call ends it. A hold that was revoked
    /// before ended then, and not as `ending` says.
    pub(super) fn history_entry(
        &self,
        hold: &Hold,
        ending: Ending,
        at: u64,
        outcome: Outcome,
        by: Option<&Operator>,
    ) -> Option<HistoryEntry> {
        // Nobody had the hold of a closed lock.
        if hold.is_of_closed_lock() {
            return None;
        }
        let (ending, operator) = match (by, self.hold_state(hold)) {
            (Some(by), _) => (ending, by.clone()),
            // Its release is on record.
            (None, HoldState::Cooling) => return None,
            (None, HoldState::Revoked) => {
                let (how, by, _) = self.revocation(hold);
                (how, by)
            }
            (None, HoldState::Held) => (ending, Operator::default()),
        };
        Some(HistoryEntry {
            ending,
            at: ServerTime(at),
            outcome,
            id: id_of(&hold.token),
            acquired: ServerTime(hold.acquired),
            waited: waited(hold.since, hold.acquired),
            fence: Fence(hold.fence),
            mode: hold.mode,
            operator,
            client: hold.client.clone(),
        })
    }

    /// The index of the oldest entry of a hold that ended well. If there is none but the latest
    /// entry, which always stays, the oldest of all.
    fn least_useful(&self) -> usize {
        let older = self.lock.history.split_last().map_or(&[][..], |(_, older)| older);
        let ended_well = |text: &String| entry(text).is_some_and(|entry| entry.ended_well());
        older.iter().position(ended_well).unwrap_or(0)
    }

    pub(super) fn record(&mut self, entries: impl IntoIterator<Item = HistoryEntry>) {
        self.lock.history.extend(entries.into_iter().map(String::from));
        while self.lock.history.len() > HISTORY_LENGTH {
            self.lock.history.remove(self.least_useful());
        }
    }

    /// Counts a client that is turned away because the lock is busy: once, even if its request
    /// arrives again.
    pub(super) fn record_skip(&mut self, token: &str, client: ClientInfo) {
        let last = &self.lock.skipped;
        let (id, at) = (id_of(token), ServerTime(self.now));
        if last.as_ref().is_none_or(|last| last.id != id) {
            let count = last.as_ref().map_or(1, |last| last.count.saturating_add(1));
            self.lock.skipped = Some(Skipped { count, at, id, client });
        }
    }

    pub(super) fn recorded(&self, token: &str) -> Option<HistoryEntry> {
        let id = id_of(token);
        let found = self.lock.history.iter().rev().find(|text| item(text, "id") == id);
        entry(found?)
    }

    /// The entries for the last of these expired holds, the earliest first.
    pub(super) fn expired_entries<'h>(
        &self,
        expired: impl IntoIterator<Item = &'h Hold>,
    ) -> Vec<HistoryEntry> {
        let mut expired: Vec<&Hold> = expired.into_iter().collect();
        expired.sort_unstable_by(|one, other| one.by_deadline(other));
        let last = expired.drain(expired.len().saturating_sub(HISTORY_LENGTH)..);
        let (ending, unknown) = (Ending::Expired, Outcome::Unknown);
        last.filter_map(|hold| self.history_entry(hold, ending, hold.deadline, unknown, None))
            .collect()
    }

    /// How the last holds ended, including those that expired since the last write.
    pub(super) fn history(&self) -> Vec<HistoryEntry> {
        let known = self.lock.written.is_some();
        let expired = self.lock.holds.iter().filter(|hold| known && hold.deadline < self.now);
        let expired = self.expired_entries(expired);
        self.lock.history.iter().filter_map(|text| entry(text)).chain(expired).collect()
    }
}
