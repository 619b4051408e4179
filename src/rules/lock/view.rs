//! A lock as others see it: its state, holders, waiters and history.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clients::{HoldState, Holder, Waiter};
use crate::rules::{Ending, Fence, HistoryEntry, Mode, Record, ServerTime, Skipped, show, variant};
use crate::text::at_most;

/// Whether a lock is held, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    #[default]
    Free,
    Held,
    /// Its holders no longer hold it, but may not know yet. The lock is not granted until they have
    /// released it or their leases have expired.
    Revoked,
    /// All holders released it before its minimum time was up.
    Cooling,
    /// Another tool wrote the key and holds the lock.
    Foreign,
}

impl State {
    /// The state of a lock that rlock holds: held if any hold is, else revoked if any hold is.
    /// `None` without holders.
    pub(crate) fn of(holders: &[Holder]) -> Option<Self> {
        let state = holders.iter().map(|holder| holder.state).min()?;
        Some(match state {
            HoldState::Held => Self::Held,
            HoldState::Revoked => Self::Revoked,
            HoldState::Cooling => Self::Cooling,
        })
    }
}

/// A lock at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    pub now: ServerTime,
    pub state: State,
    /// The mode of the holds as a whole, if there are any.
    pub mode: Option<Mode>,
    /// The time until the lock becomes free without a renewal. `None` if it is free, or foreign
    /// without an expiry.
    pub ttl: Option<Duration>,
    pub fence: Option<Fence>,
    /// Whether a client of rlock wrote the key of a foreign lock: one with another format, or one
    /// whose record the server has lost.
    pub(crate) is_of_rlock: bool,
    /// A random mark that a server loses together with its data; empty if the lock was never held.
    pub generation: String,
    pub holders: Vec<Holder>,
    /// How many holders are missing from the list.
    pub unlisted_holders: u64,
    /// The waiters that are presumed alive, if requested.
    pub waiters: Vec<Waiter>,
    /// How many waiters are missing from the list, some of which may be dead.
    pub unlisted_waiters: u64,
    /// How the last holds ended, the latest last, if requested.
    pub history: Vec<HistoryEntry>,
    /// In a box, because few locks have it.
    pub skipped: Option<Box<Skipped>>,
}

impl View {
    /// A lock as the list of records that `lua/view.lua` describes; `None` if it is none, or if the lock
    /// stands in a way that only later versions know. The texts end at their longest length.
    pub(crate) fn of(records: &[String]) -> Option<Self> {
        let (mut view, mut is_known) = (Self::default(), false);
        for text in records {
            let record = Record::of(text);
            match record.kind() {
                "holder" => view.holders.push(Holder::of(&record)?),
                "waiter" => view.waiters.push(Waiter::of(&record)),
                // Later versions of rlock may have more endings; skip those entries.
                "ended" => view.history.extend(HistoryEntry::of(&record)),
                "skipped" => view.skipped = Skipped::of(&record).map(Box::new),
                "lock" => {
                    is_known = true;
                    view.state = variant(record.get("lock"))?;
                    view.now = record.time("now");
                    view.mode = record.mode();
                    view.ttl = record.get("left").parse().ok().map(Duration::from_millis);
                    view.fence = record.get("fence").parse().ok().map(Fence);
                    view.generation = at_most(255, record.get("generation")).to_owned();
                    view.unlisted_holders = record.number("holders");
                    view.unlisted_waiters = record.number("waiters");
                    view.is_of_rlock = !record.get("is_of_rlock").is_empty();
                }
                _ => {}
            }
        }
        view.unlisted_holders = view.unlisted_holders.saturating_sub(view.holders.len() as u64);
        // Without spare capacity, because a list of locks has thousands of these.
        view.holders.shrink_to_fit();
        is_known.then_some(view)
    }

    /// How many holders there are, listed or not.
    pub fn holder_count(&self) -> u64 {
        self.unlisted_holders.saturating_add(self.holders.len() as u64)
    }

    /// How many waiters there are, listed or not.
    pub fn waiter_count(&self) -> u64 {
        self.unlisted_waiters.saturating_add(self.waiters.len() as u64)
    }

    /// The holder to name if there is room for one: the one that has held the lock for longest, and
    /// one that still holds it before one that does not.
    pub(crate) fn foremost(&self) -> Option<&Holder> {
        self.holders.iter().min_by_key(|holder| (holder.state, holder.acquired))
    }

    /// Whether nothing is known of the lock: it was never used, or not for a day.
    pub(crate) fn is_unknown(&self) -> bool {
        self.state == State::Free
            && (&self.fence, &self.skipped, self.history.len()) == (&None, &None, 0)
    }

    /// Who holds a foreign lock, as far as its key tells.
    pub(crate) fn foreigner(&self) -> &'static str {
        if self.is_of_other_rlock() { "another version of rlock" } else { "another tool" }
    }

    /// Whether another version of rlock holds it. Its key would expire.
    pub(crate) fn is_of_other_rlock(&self) -> bool {
        self.is_of_rlock && self.ttl.is_some()
    }

    /// How long the lock has been held, by the holder to name. `None` if it is free or cooling, or
    /// held by another tool.
    pub(crate) fn age(&self) -> Option<Duration> {
        let holder = self.foremost().filter(|holder| holder.state != HoldState::Cooling);
        holder.map(|holder| self.now.since(holder.acquired))
    }

    /// The lock with only those of the listed holders whose fencing token is at most this one.
    pub fn up_to(mut self, fence: Fence) -> Self {
        self.holders.retain(|holder| holder.fence <= fence);
        self
    }

    /// For the answer to a repeated revocation: adds those of the holders `before_all` that an
    /// earlier copy has revoked and that are gone. The others ended by themselves, as `history`
    /// shows.
    pub fn add_revoked_earlier(&mut self, before_all: Vec<Holder>, history: &[HistoryEntry]) {
        let ending = |id: &str| history.iter().rfind(|entry| entry.id == id).map(|it| it.ending);
        let is_left = |id: &str| self.holders.iter().any(|holder| holder.id == id);
        let was_revoked = |holder: &Holder| {
            // The history has the release of a cooling hold, not its end.
            holder.state == HoldState::Cooling
                || ending(&holder.id).is_none_or(|ending| ending == Ending::Revoked)
        };
        let gone: Vec<Holder> =
            before_all.into_iter().filter(|it| !is_left(&it.id) && was_revoked(it)).collect();
        self.holders.extend(gone);
    }

    /// A hint for the message to a request in this mode, if the reason that it cannot join the
    /// holders may surprise its user. Otherwise empty.
    pub fn mismatch(&self, asked: Mode) -> String {
        let how = |mode: Mode| match mode {
            Mode::Exclusive => "exclusively".to_owned(),
            Mode::Shared => "with --shared".into(),
            Mode::Slots(slots) => format!("with --slots {slots}"),
        };
        match (self.mode, asked) {
            // Readers and writers are expected to exclude each other.
            (Some(Mode::Shared), Mode::Exclusive) | (Some(Mode::Exclusive), Mode::Shared) => {
                String::new()
            }
            (Some(held), asked) if held != asked => {
                format!("; held {}, but requested {}", how(held), how(asked))
            }
            // The request could join, but earlier ones are waiting.
            (Some(Mode::Shared | Mode::Slots(_)), _) if self.waiter_count() > 0 => {
                format!("; {} already waiting", self.waiter_count())
            }
            _ => String::new(),
        }
    }
}

impl fmt::Display for View {
    /// Names the holder, for a message: `held by ana@ci-3 pid 4242 (make) for 2m13s, label
    /// https://…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.foremost() else {
            return match (self.state, self.ttl) {
                (State::Foreign, ttl) => {
                    write!(f, "held by {}, whose key ", self.foreigner())?;
                    match ttl {
                        Some(ttl) => write!(f, "expires in {}", show(ttl)),
                        None => f.write_str("has no expiry"),
                    }
                }
                _ if self.waiter_count() > 0 => {
                    f.write_str("about to be granted to an earlier waiter")
                }
                _ => f.write_str("now free"),
            };
        };
        if first.is_closing() {
            return f.write_str(&first.closing(self.now));
        }
        match (self.state, self.mode) {
            // The time since the grant is not the time that it was held.
            (State::Cooling, _) => write!(f, "released by {}", first.client)?,
            (_, mode) => {
                let how = if mode == Some(Mode::Shared) { "shared by" } else { "held by" };
                write!(f, "{how} {} for {}", first.client, show(self.now.since(first.acquired)))?;
            }
        }
        if let Some(label) = first.client.label() {
            write!(f, ", label {label}")?;
        }
        match self.holder_count().saturating_sub(1) {
            0 => {}
            others => write!(f, ", and {others} more")?,
        }
        if let Some(Mode::Slots(slots)) = self.mode {
            write!(f, " (of {slots} slots)")?;
        }
        let end = show(self.ttl.unwrap_or_default());
        match self.state {
            State::Revoked => write!(f, "; revoked, free within {end}"),
            State::Cooling => write!(f, "; kept for another {end} (--at-least)"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{ClientInfo, Slot};

    /// A lock 10 s after its first hold began. Of each hold: how many seconds after that, and how it
    /// stands. The n-th has the fencing token n.
    fn held(mode: Mode, holds: &[(u64, HoldState)]) -> View {
        let hold = |(number, (begun, state)): (u64, &(u64, HoldState))| Holder {
            id: number.to_string(),
            acquired: ServerTime(begun * 1_000),
            fence: Fence(number),
            state: *state,
            ..Holder::default()
        };
        let holders: Vec<Holder> = (1..).zip(holds).map(hold).collect();
        View {
            now: ServerTime(10_000),
            state: State::of(&holders).unwrap_or_default(),
            mode: Some(mode),
            ttl: Some(Duration::from_secs(4)),
            holders,
            ..View::default()
        }
    }

    fn slots(number: u32) -> Mode {
        Mode::Slots(Slot::new(number).unwrap())
    }

    #[test]
    fn a_message_names_the_holder_that_has_held_the_lock_for_longest() {
        use HoldState::{Cooling, Held, Revoked};
        let foreign = |ttl: Option<u64>| View {
            state: State::Foreign,
            ttl: ttl.map(Duration::from_secs),
            ..View::default()
        };
        let waited_for = View { unlisted_waiters: 1, ..View::default() };
        let three = held(slots(3), &[(5, Held), (2, Held), (6, Held)]);
        let [revoked, cooling] = [Revoked, Cooling].map(|it| held(Mode::Exclusive, &[(0, it)]));
        let beside_a_revoked_one = held(Mode::Shared, &[(0, Revoked), (5, Held)]);
        for (view, shown, age) in [
            (View::default(), "now free", None),
            (waited_for, "about to be granted to an earlier waiter", None),
            (foreign(None), "held by another tool, whose key has no expiry", None),
            (foreign(Some(3)), "held by another tool, whose key expires in 3s", None),
            (held(Mode::Exclusive, &[(0, Held)]), "held by WHO for 10s", Some(10)),
            (held(Mode::Shared, &[(5, Held)]), "shared by WHO for 5s", Some(5)),
            (three, "held by WHO for 8s, and 2 more (of 3 slots)", Some(8)),
            (beside_a_revoked_one, "shared by WHO for 5s, and 1 more", Some(5)),
            (revoked, "held by WHO for 10s; revoked, free within 4s", Some(10)),
            (cooling, "released by WHO; kept for another 4s (--at-least)", None),
        ] {
            let who = ClientInfo::default().to_string();
            assert_eq!(view.to_string(), shown.replace("WHO", &who));
            assert_eq!(view.age().map(|age| age.as_secs()), age, "{shown}");
        }
    }

    #[test]
    fn a_busy_message_says_why_a_request_that_seems_to_fit_does_not() {
        let others = |mode, unlisted_waiters| View { unlisted_waiters, ..held(mode, &[]) };
        let (alone, shared) = (Mode::Exclusive, Mode::Shared);
        for (view, asked, told) in [
            (others(shared, 0), alone, ""),
            (others(alone, 1), shared, ""),
            (others(alone, 1), alone, ""),
            (others(shared, 0), shared, ""),
            (others(shared, 2), shared, "; 2 already waiting"),
            (others(slots(2), 1), slots(2), "; 1 already waiting"),
            (others(slots(2), 1), slots(3), "; held with --slots 2, but requested with --slots 3"),
            (others(alone, 0), slots(3), "; held exclusively, but requested with --slots 3"),
            (View::default(), shared, ""),
        ] {
            assert_eq!(view.mismatch(asked), told, "{asked:?}");
        }
    }

    #[test]
    fn a_repeated_revocation_counts_those_that_an_earlier_copy_revoked() {
        use HoldState::{Cooling, Held};
        let seen = || held(Mode::Shared, &[(0, Held), (1, Held), (2, Held), (3, Cooling)]);
        assert_eq!(seen().up_to(Fence(2)).holders.len(), 2);
        let entry = |id: &str, ending| HistoryEntry { id: id.into(), ending, ..Default::default() };
        // The first one is left, the second was revoked, and the third released itself.
        let history = [
            entry("2", Ending::Released),
            entry("2", Ending::Revoked),
            entry("3", Ending::Revoked),
            entry("3", Ending::Released),
            entry("4", Ending::Released),
        ];
        let mut view = seen().up_to(Fence(1));
        view.add_revoked_earlier(seen().holders, &history);
        let ids: Vec<&str> = view.holders.iter().map(|holder| holder.id.as_str()).collect();
        assert_eq!(ids, ["1", "2", "4"]);
        let mut view = seen().up_to(Fence(1));
        view.add_revoked_earlier(seen().holders, &[]);
        assert_eq!(view.holder_count(), 4);
    }
}
