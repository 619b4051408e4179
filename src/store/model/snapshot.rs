//! Reads a lock as the scripts keep it on a server, but without a script. A script for each of
//! thousands of locks would take too long.

use super::lock::{Floor, Guard, Hold, Lock};
use super::transaction::Transaction;
use crate::lock::Mode;
use crate::lock::view::{HoldState, View};

/// What the keys of a lock contain; see `lua/lock.lua`.
pub(in crate::store) struct Snapshot {
    pub(in crate::store) guard: Option<String>,
    /// Token and deadline.
    pub(in crate::store) holds: Vec<(String, u64)>,
    pub(in crate::store) state: Vec<(String, String)>,
}

impl Snapshot {
    /// The lock, with empty values for details that the server evicted. `None` unless it is simply
    /// held and has no waiters.
    pub(in crate::store) fn view(self, now: u64) -> Option<View> {
        let Self { guard, holds, state } = self;
        let state = State::of(&state);
        if guard.as_deref() != state.own("guard")
            || guard.is_none()
            || state.own("ticket").is_some()
        {
            return None;
        }
        let number = |field| state.own(field).and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut lock = Lock {
            written: guard.clone(),
            guard: guard.map(|value| Guard { value, until: None }),
            mode: state.own("mode").and_then(|mode| mode.to_owned().try_into().ok()),
            fence: number("fence"),
            life: state.own("life").unwrap_or_default().to_owned(),
            floor: Floor { fence: number("floor"), ..Floor::default() },
            holds: holds.into_iter().map(|(token, until)| state.hold(token, until)).collect(),
            ..Lock::default()
        };
        Some(Transaction::begin(&mut lock, now).view(0, usize::MAX))
    }
}

/// The fields of the state, most of them `TOKEN:DETAIL`, sorted so that those of one token are
/// adjacent.
struct State<'a>(Vec<(&'a str, &'a str)>);

impl<'a> State<'a> {
    fn of(fields: &'a [(String, String)]) -> Self {
        let mut all: Vec<_> =
            fields.iter().map(|(field, value)| (field.as_str(), value.as_str())).collect();
        all.sort_unstable();
        Self(all)
    }

    fn own(&self, field: &str) -> Option<&'a str> {
        let found = self.0.binary_search_by(|(name, _)| (*name).cmp(field));
        found.ok().map(|index| self.0[index].1)
    }

    fn details(&self, token: &str) -> Details<'a, '_> {
        let start = self.0.partition_point(|(name, _)| *name < token);
        let rest = &self.0[start..];
        let length = rest.iter().take_while(|(name, _)| name.starts_with(token)).count();
        Details { fields: &rest[..length], skip: token.len() + 1 }
    }

    fn hold(&self, token: String, deadline: u64) -> Hold {
        let details = self.details(&token);
        Hold {
            owner: details.text("owner"),
            mode: details.mode(),
            about: details.text("about"),
            fence: details.number("fence"),
            acquired: details.number("acquired"),
            since: details.parsed("since").or_else(|| {
                // As `first_asked` in `lua/holds.lua`.
                let reinstated = details.find("standing") == Some("revoked");
                if reinstated { None } else { details.parsed("acquired") }
            }),
            renewed: details.parsed("renewed"),
            named: false,
            keep_until: details.number("keep"),
            ttl: details.number("ttl"),
            slot: details.text("slot").parse().ok(),
            attempt: details.number("attempt"),
            // Who revoked it does not matter here.
            standing: match details.find("standing").and_then(|text| text.split(' ').next()) {
                Some("revoked") => HoldState::Revoked,
                Some("cooling") => HoldState::Cooling,
                _ => HoldState::Held,
            },
            revoked: None,
            token,
            deadline,
        }
    }
}

/// The fields of one token; `skip` is its length with the colon.
struct Details<'a, 'b> {
    fields: &'b [(&'a str, &'a str)],
    skip: usize,
}

impl<'a> Details<'a, '_> {
    fn find(&self, detail: &str) -> Option<&'a str> {
        let named = |(name, _): &&(&str, &str)| name.get(self.skip..) == Some(detail);
        self.fields.iter().find(named).map(|(_, value)| *value)
    }

    fn text(&self, detail: &str) -> String {
        self.find(detail).unwrap_or_default().to_owned()
    }

    fn parsed(&self, detail: &str) -> Option<u64> {
        self.find(detail).and_then(|number| number.parse().ok())
    }

    fn number(&self, detail: &str) -> u64 {
        self.parsed(detail).unwrap_or(0)
    }

    fn mode(&self) -> Mode {
        self.text("mode").try_into().unwrap_or(Mode::Exclusive)
    }
}
