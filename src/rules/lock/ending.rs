//! How a hold ended, and who ended it.

use std::fmt;
use std::time::Duration;

use serde::de::{DeserializeOwned, IntoDeserializer, value};
use serde::{Deserialize, Serialize};

use super::Stored;
use crate::rules::show;
use crate::text::{at_most, printable};

/// Who revoked a hold or removed a waiter, and why, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Operator {
    /// As user@host.
    #[serde(rename = "by")]
    pub name: Option<String>,
    pub reason: Option<String>,
}

impl Stored for Operator {
    /// One line.
    fn to_stored(&self) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        self.reason.as_ref().map_or_else(|| name.to_owned(), |reason| format!("{name}\t{reason}"))
    }

    fn from_stored(line: &str) -> Self {
        let (name, reason) = line.split_once('\t').unwrap_or((line, ""));
        let shown = |text| Some(printable(at_most(1000, text))).filter(|text| !text.is_empty());
        Self { name: shown(name), reason: shown(reason) }
    }
}

impl fmt::Display for Operator {
    /// Continues a sentence: " by ana@ci-3, reason: OPS-12".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, " by {name}")?;
        }
        match &self.reason {
            Some(reason) => write!(f, ", reason: {reason}"),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    #[default]
    Released,
    Expired,
    Revoked,
    /// Its key was deleted.
    Deleted,
    /// Another tool wrote its key.
    Overwritten,
    /// The server lost it, and a waiter reported it.
    Forgotten,
    /// Its holder could not renew it in time and stopped the command.
    Lost,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The variant of this name in JSON, which is also what stores keep.
pub fn variant<T: DeserializeOwned>(name: &str) -> Option<T> {
    T::deserialize(IntoDeserializer::<value::Error>::into_deserializer(name)).ok()
}

/// Why a token does not hold the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// `None` if the server has no record of the hold.
    ending: Option<Ending>,
    /// Whether the record was in files.
    in_files: bool,
    ago: Option<Duration>,
    operator: Operator,
}

impl Reason {
    pub fn new(ending: Option<Ending>, ago: Option<Duration>, operator: Operator) -> Self {
        Self { ending, in_files: false, ago, operator }
    }

    /// The same reason from a store without a server, which loses a record only with its files.
    pub(crate) fn in_files(self) -> Self {
        Self { in_files: true, ..self }
    }

    /// For a token that the server has no record of.
    pub fn unknown() -> Self {
        Self::new(None, None, Operator::default())
    }

    /// Whether the server has a record of the hold.
    pub(crate) fn is_known(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether the history of the lock tells how the hold ended. Otherwise it is only inferred, and
    /// the token may never have held this lock.
    pub(crate) fn is_recorded(&self) -> bool {
        match self.ending {
            Some(Ending::Released | Ending::Expired) => self.ago.is_some(),
            ending => ending.is_some(),
        }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.ending == Some(Ending::Released)
    }
}

impl fmt::Display for Reason {
    /// Completes a sentence about the hold: "was revoked by ana@ci-3 5s ago".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.ending {
            Some(Ending::Expired) => "expired",
            Some(Ending::Released | Ending::Lost) => "was released",
            Some(Ending::Revoked) => "was revoked",
            Some(Ending::Deleted) => "was deleted",
            Some(Ending::Overwritten) => "was overwritten by another tool",
            Some(Ending::Forgotten) | None if self.in_files => {
                return f.write_str("was deleted with its files");
            }
            Some(Ending::Forgotten) | None => return f.write_str("was forgotten by the server"),
        })?;
        if let Some(name) = &self.operator.name {
            write!(f, " by {name}")?;
        }
        match self.ago {
            // Of these, only the time of detection is known.
            _ if matches!(self.ending, Some(Ending::Deleted | Ending::Overwritten)) => {}
            Some(ago) => write!(f, " {} ago", show(ago))?,
            None => {}
        }
        match &self.operator.reason {
            Some(reason) => write!(f, ", reason: {reason}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_tells_how_a_hold_ended_as_far_as_known() {
        let ago = Some(Duration::from_secs(5));
        let by = Operator { name: Some("ana@ci-3".into()), reason: Some("OPS-12".into()) };
        let of = |ending, ago| Reason::new(Some(ending), ago, Operator::default());
        let revoked = Reason::new(Some(Ending::Revoked), ago, by);
        for (reason, told, is_recorded) in [
            (of(Ending::Released, ago), "was released 5s ago", true),
            (of(Ending::Released, None), "was released", false),
            (of(Ending::Expired, None), "expired", false),
            (revoked, "was revoked by ana@ci-3 5s ago, reason: OPS-12", true),
            // Only the time of detection is known.
            (of(Ending::Deleted, ago), "was deleted", true),
            (Reason::unknown(), "was forgotten by the server", false),
            (Reason::unknown().in_files(), "was deleted with its files", false),
        ] {
            assert_eq!(reason.to_string(), told);
            assert_eq!(reason.is_recorded(), is_recorded, "{told}");
            let is_unknown = told.contains("with its") || told.contains("forgotten");
            assert_eq!(reason.is_known(), !is_unknown);
            assert_eq!(reason.is_released(), told.starts_with("was released"));
        }
        let line = Operator::from_stored("ana@ci-3\tOPS-12").to_string();
        assert_eq!(line, " by ana@ci-3, reason: OPS-12");
    }
}
