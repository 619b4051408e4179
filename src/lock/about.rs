//! What a hold tells people about itself: who has it, and what keeps it alive.

use std::fmt;
use std::str::FromStr;

/// A short text from the user for those who wait or look: a job's URL, a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label(String);

impl FromStr for Label {
    type Err = String;

    /// A decoration is no reason to fail: what would break a line becomes a space.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > 1000 {
            return Err("a label has at most 1000 bytes".into());
        }
        Ok(Self(printable(text)))
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
pub(crate) struct ProcessNumber(i32);

impl ProcessNumber {
    pub(crate) fn get(self) -> i32 {
        self.0
    }
}

impl FromStr for ProcessNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(number @ 1..) => Ok(Self(number)),
            _ => Err("not the number of a process".into()),
        }
    }
}

/// What people see of the one who holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) host: String,
    pub(crate) user: String,
    pub(crate) pid: u32,
    /// The program's name. Not its arguments: they can hold secrets.
    pub(crate) command: String,
    pub(crate) kind: Kind,
    pub(crate) label: Option<Label>,
}

impl About {
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
            printable(&self.host),
            printable(&self.user),
            self.pid,
            printable(&self.command),
        )
    }

    /// Reads what another rlock, perhaps of another version, perhaps hostile, wrote: what is
    /// missing stays empty, and nothing in it can move a terminal's cursor.
    pub(crate) fn from_lines(lines: &str) -> Self {
        let mut lines = lines.split('\n').map(printable);
        let mut next = || lines.next().unwrap_or_default();
        Self {
            host: next(),
            user: next(),
            pid: next().parse().unwrap_or(0),
            command: next(),
            kind: match next().as_str() {
                "exec" => Kind::Exec,
                "while-pid" => Kind::WhilePid,
                _ => Kind::Acquire,
            },
            label: Some(next()).filter(|label| !label.is_empty()).map(Label),
        }
    }

    pub(crate) fn label(&self) -> Option<&str> {
        self.label.as_ref().map(|label| label.0.as_str())
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, user, pid, command, .. } = self;
        write!(f, "{user}@{host} pid {pid} ({command})")
    }
}

/// Without anything that could break a line or move a cursor.
pub(crate) fn printable(text: &str) -> String {
    // Nearly always so, and there may be thousands.
    if text.bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
        return text.to_owned();
    }
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hold_tells_about_itself_survives_the_way_to_the_server_and_back() {
        let about = About {
            host: "ci-3".into(),
            user: "ana".into(),
            pid: 4242,
            command: "make".into(),
            kind: Kind::Exec,
            label: Some("https://ci/1".parse().unwrap()),
        };
        assert_eq!(About::from_lines(&about.to_lines()), about);
        assert_eq!(about.to_string(), "ana@ci-3 pid 4242 (make)");
    }

    #[test]
    fn a_hostile_description_cannot_move_the_cursor() {
        let about = About::from_lines("\u{1b}[2Jhost\nu\r\n7\nc\nexec\nl\u{9b}1m");
        assert_eq!(about.host, " [2Jhost");
        assert_eq!(about.label(), Some("l 1m"));
        assert_eq!(About::from_lines("").pid, 0);
    }
}
