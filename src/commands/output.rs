//! Results on stdout: text for users, assignments for scripts, JSON for programs.

use std::ffi::OsString;
use std::io::{ErrorKind, Write, stdout};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::cli;
use crate::error::Error;
use crate::exit::Exit;
use crate::inspect::json::{self, object};
use crate::rules::{Instant, Name};
use crate::system::poll::{self, Interrupt, NEVER};
use crate::text::{Line, is_unsafe};

/// What reads the result of a command on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Human,
    /// With `lists`, every document lists locks: none after a failure.
    Json {
        lists: bool,
    },
    /// A shell, which evaluates it.
    Shell,
}

impl Output {
    /// For a command with `--json` as its only choice.
    pub(super) fn of(json: bool, lists: bool) -> Self {
        if json { Self::Json { lists } } else { Self::Human }
    }

    pub(super) fn of_acquire(options: &cli::AcquireArgs) -> Self {
        if options.shell { Self::Shell } else { Self::of(options.json, false) }
    }

    /// For a command line that could not be parsed: what its words ask for, as far as they are
    /// options of the subcommand.
    pub(super) fn of_words(arguments: &[OsString]) -> Self {
        let [_, subcommand, words @ ..] = arguments else { return Self::Human };
        let has =
            |option: &str| words.iter().take_while(|word| *word != "--").any(|word| word == option);
        match subcommand.to_str() {
            Some("acquire" | "renew" | "release") if has("--json") => Self::Json { lists: false },
            Some("inspect") if has("--json") => Self::Json { lists: true },
            Some("acquire") if has("--shell") => Self::Shell,
            _ => Self::Human,
        }
    }
}

/// How long the last words wait for room on stdout. The status matters more.
const LAST_AT_MOST: Duration = Duration::from_millis(500);

/// What the JSON document of a command says that failed and exits so. Without a name, the command
/// line could not be parsed, or names no lock.
pub(super) fn failure(name: Option<&Name>, error: &Error, exit: Exit) -> impl Serialize {
    let (mut holders, mut superseded, mut operator) = (None, None, None);
    match error {
        Error::Busy { view, .. } | Error::Id { view, .. } => {
            holders = Some(object! { holders: json::holders(view) });
        }
        Error::Superseded(newer) => superseded = Some(object! { superseded_by: newer }),
        Error::Removed(by) => operator = Some(by),
        _ => {}
    }
    object! {
        status: error.status(),
        name: name.map(Name::as_str),
        exit: exit.shown(),
        message: Line::new(&error.to_string()).as_str().to_owned(),
        #[serde(flatten)]
        holders: holders,
        #[serde(flatten)]
        superseded: superseded,
        #[serde(flatten)]
        operator: operator,
    }
}

/// Prints a text before rlock ends with an error, if that is possible without a long wait.
pub(super) fn last(text: &str) -> Result<(), Error> {
    let until = Some(Instant::now() + LAST_AT_MOST);
    text_unless(NEVER.or_at(until), text).map(drop)
}

/// Prints one JSON document with this content.
pub(super) fn document(content: impl Serialize) -> Result<(), Error> {
    text(&line(content)?)
}

/// Returns one JSON document with this content, on one line.
pub(super) fn line(content: impl Serialize) -> Result<String, Error> {
    let document = object! { format: 1, #[serde(flatten)] content: content };
    let mut text = Vec::new();
    let mut writer = Serializer::with_formatter(&mut text, Escaping);
    document.serialize(&mut writer).context("cannot write JSON")?;
    text.push(b'\n');
    Ok(String::from_utf8(text).context("cannot write JSON")?)
}

/// Compact, and harmless on a terminal: JSON itself does not escape most control characters.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|&(_, c)| is_unsafe(c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Writes all of a text, or fails.
pub(super) fn text(text: &str) -> Result<(), Error> {
    text_unless(NEVER, text).map(drop)
}

/// Writes all of a text, or fails; returns false if the interrupt comes first. This bypasses std's
/// stdout, which ignores a closed descriptor.
pub(super) fn text_unless(stop: Interrupt<'_>, text: &str) -> Result<bool, Error> {
    match poll::write(stdout().as_fd(), text.as_bytes(), stop) {
        // SIGPIPE ends most programs here, but rlock ignores it.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Error::Unread),
        written => Ok(written.context("cannot write to standard output")?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_complete_and_safe_for_a_terminal() {
        let text = "a\u{1b}\"\\\n\u{7f}\u{9b}2J\u{202e}\u{e0041}ä日";
        let json = line(object! { text: text }).unwrap();
        let line = json.strip_suffix('\n').unwrap();
        assert!(!line.contains(is_unsafe), "{json:?}");
        assert!(line.contains("\\u009b2J\\u202e\\udb40\\udc41ä日"), "{json:?}");
        let document: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(document["text"], text);
    }
}
