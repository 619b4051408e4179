//! What others see of a client: its user, host and process, and what renews its hold.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Record, Stored};
use crate::rules::{UserMessage, variant};
use crate::text::{at_most, masked, printable};

/// The longest host, user or program name that is shown, in bytes.
const LONGEST_NAME: usize = 255;

/// A short text from the user, shown to waiters and in inspect: a job's URL, a ticket. Any text is
/// accepted, because a label must not make a command fail. Characters that would break a line
/// become spaces, and the text is cut at 1,000 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Label(String);

impl Label {
    const LONGEST_LABEL: usize = 1000;
}

impl FromStr for Label {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(printable(at_most(Self::LONGEST_LABEL, &masked(text)))))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<OsString> for Label {
    fn from(text: OsString) -> Self {
        let Ok(label) = text.to_string_lossy().parse();
        label
    }
}

/// Which command requested a hold, and therefore what renews it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum HoldKind {
    /// `exec` renews it.
    Exec,
    /// Only the script that acquired it can renew it.
    #[default]
    Acquire,
    /// The keeper of `acquire --while-pid` renews it.
    WhilePid,
}

impl fmt::Display for HoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A process ID. Never 0 or negative, because kill(2) reads those as process groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId(i32);

impl ProcessId {
    /// How a shell learns the ID of its own process, also in a subshell, where $$ is another one.
    pub(crate) const OF_THIS_SHELL: &str = "me=$(exec sh -c 'echo $PPID')";

    pub(crate) fn get(self) -> i32 {
        self.0
    }
}

impl FromStr for ProcessId {
    type Err = UserMessage;

    fn from_str(text: &str) -> Result<Self, UserMessage> {
        match text.parse() {
            Ok(number @ 1..) => Ok(Self(number)),
            Ok(_) => Err(UserMessage::of_value("not a process ID", text)
                .with_remedy("use a positive number, such as $$ in a script")),
            Err(_) if text.is_empty() => Err(UserMessage::new("empty process ID")
                .with_remedy(format!("set it with {}", Self::OF_THIS_SHELL))),
            // If the variable before NAME is empty and not quoted, NAME is in its place.
            Err(_) => Err(UserMessage::of_value("not a process ID", text)
                .with_remedy("put a number there, and check that its variable is not empty")),
        }
    }
}

/// What others see of a holder or a waiter.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ClientInfo {
    pub host: String,
    pub user: String,
    pub pid: u32,
    /// The name of the program, without its arguments, which may contain secrets.
    pub command: String,
    pub kind: HoldKind,
    pub label: Option<Label>,
}

impl Stored for ClientInfo {
    /// A record.
    fn to_stored(&self) -> String {
        format!(
            "\nkind {}\nhost {}\nuser {}\npid {}\ncommand {}\nlabel {}",
            self.kind,
            shown_name(&self.host),
            shown_name(&self.user),
            self.pid,
            shown_name(&self.command),
            self.label().unwrap_or_default(),
        )
    }

    fn from_stored(text: &str) -> Self {
        Self::of(&Record::of(text))
    }
}

impl ClientInfo {
    /// The client in a record. No item can move the cursor of a terminal.
    pub(super) fn of(record: &Record<'_>) -> Self {
        let name = |name| shown_name(record.get(name));
        let label = Some(record.get("label")).filter(|label| !label.is_empty());
        Self {
            kind: variant(record.get("kind")).unwrap_or_default(),
            host: name("host"),
            user: name("user"),
            pid: record.get("pid").parse().unwrap_or(0),
            command: name("command"),
            label: label.and_then(|label| label.parse().ok()),
        }
    }

    pub fn label(&self) -> Option<&str> {
        self.label.as_ref().map(|label| label.0.as_str())
    }
}

impl fmt::Display for ClientInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, user, pid, command, .. } = self;
        if *pid == 0 {
            return f.write_str("an unknown client");
        }
        write!(f, "{user}@{host} pid {pid} ({command})")
    }
}

fn shown_name(text: &str) -> String {
    printable(at_most(LONGEST_NAME, text))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn any_text_is_accepted_as_a_label() {
        let label = |bytes: &[u8]| Label::from(OsStr::from_bytes(bytes).to_owned()).0;
        assert_eq!(label("job 7".as_bytes()), "job 7");
        assert_eq!(label(b"a\xffb\n"), "a\u{fffd}b ");
        let long = format!("x{}", "ä".repeat(600));
        assert_eq!(label(long.as_bytes()), format!("x{}", "ä".repeat(499)));
    }
}
