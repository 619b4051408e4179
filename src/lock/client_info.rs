//! What a hold tells people about itself: who has it, and what keeps it alive.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use crate::text::{at_most, printable};

/// Of a host's, a user's or a program's name, so many bytes are shown.
const LONGEST_NAME: usize = 255;

/// A short text from the user for those who wait or look: a job's URL, a ticket. A decoration is no
/// reason to fail, so any text makes one: what would break a line becomes a space, and what is more
/// than 1,000 bytes is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label(String);

impl Label {
    const LONGEST: usize = 1000;
}

impl FromStr for Label {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(printable(at_most(Self::LONGEST, text))))
    }
}

impl From<OsString> for Label {
    fn from(text: OsString) -> Self {
        let Ok(label) = text.to_string_lossy().parse();
        label
    }
}

/// Which command made a hold, which says who keeps it alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// An `exec` renews it.
    Exec,
    /// Nobody but the script that acquired it.
    Acquire,
    /// A keeper that `acquire --while-pid` has left behind.
    WhilePid,
}

/// The number of a process; never 0 or negative, which would mean groups of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(i32);

impl ProcessId {
    pub(crate) fn get(self) -> i32 {
        self.0
    }
}

impl FromStr for ProcessId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(number @ 1..) => Ok(Self(number)),
            _ => Err("not a process ID; use a number from 1".into()),
        }
    }
}

/// What people see of the one who holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientInfo {
    pub(crate) host: String,
    pub(crate) user: String,
    pub(crate) pid: u32,
    /// The program's name. Not its arguments: they can hold secrets.
    pub(crate) command: String,
    pub(crate) kind: Kind,
    pub(crate) label: Option<Label>,
}

impl ClientInfo {
    /// As the server keeps it: a line each, the label last. Later versions may add lines.
    pub(crate) fn to_lines(&self) -> String {
        let kind = match self.kind {
            Kind::Exec => "exec",
            Kind::Acquire => "acquire",
            Kind::WhilePid => "while-pid",
        };
        let label = self.label.as_ref().map_or("", |label| &label.0);
        format!(
            "{}\n{}\n{}\n{}\n{kind}\n{label}",
            shown_name(&self.host),
            shown_name(&self.user),
            self.pid,
            shown_name(&self.command),
        )
    }

    /// Reads what another rlock, perhaps of another version, perhaps hostile, wrote: what is
    /// missing stays empty, and nothing in it can move a terminal's cursor.
    pub(crate) fn from_lines(lines: &str) -> Self {
        let mut lines = lines.split('\n');
        let mut next = || lines.next().unwrap_or_default();
        Self {
            host: shown_name(next()),
            user: shown_name(next()),
            pid: next().parse().unwrap_or(0),
            command: shown_name(next()),
            kind: match next() {
                "exec" => Kind::Exec,
                "while-pid" => Kind::WhilePid,
                _ => Kind::Acquire,
            },
            label: Some(next())
                .filter(|label| !label.is_empty())
                .and_then(|label| label.parse().ok()),
        }
    }

    pub(crate) fn label(&self) -> Option<&str> {
        self.label.as_ref().map(|label| label.0.as_str())
    }
}

impl fmt::Display for ClientInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, user, pid, command, .. } = self;
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
    fn what_a_hold_tells_about_itself_survives_the_way_to_the_server_and_back() {
        let about = ClientInfo {
            host: "ci-3".into(),
            user: "ana".into(),
            pid: 4242,
            command: "make".into(),
            kind: Kind::Exec,
            label: Some("https://ci/1".parse().unwrap()),
        };
        assert_eq!(ClientInfo::from_lines(&about.to_lines()), about);
        assert_eq!(about.to_string(), "ana@ci-3 pid 4242 (make)");
    }

    #[test]
    fn a_hostile_description_cannot_move_the_cursor() {
        let about = ClientInfo::from_lines("\u{1b}[2Jhost\nu\r\n7\nc\nexec\nl\u{9b}1m");
        assert_eq!(about.host, " [2Jhost");
        assert_eq!(about.label(), Some("l 1m"));
        assert_eq!(ClientInfo::from_lines("").pid, 0);
        let long = format!("{}\nu\n7\nc\nexec\n{}", "h".repeat(1 << 20), "ä".repeat(1 << 20));
        let about = ClientInfo::from_lines(&long);
        assert_eq!((about.host.len(), about.label().map(str::len)), (255, Some(1000)));
    }

    #[test]
    fn a_label_of_any_kind_is_a_label() {
        let label = |bytes: &[u8]| Label::from(OsStr::from_bytes(bytes).to_owned()).0;
        assert_eq!(label("job 7".as_bytes()), "job 7");
        assert_eq!(label(b"a\xffb\n"), "a\u{fffd}b ");
        let long = format!("x{}", "ä".repeat(600));
        assert_eq!(label(long.as_bytes()), format!("x{}", "ä".repeat(499)));
    }
}
