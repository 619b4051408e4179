//! Results on stdout: text for users, assignments for scripts, JSON for programs.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::error::Error;
use crate::exit::Exit;
use crate::inspect::json::{ClientDocument, HolderDocument, WaiterDocument};
use crate::rules::{Fence, Name, Slot, Token};
use crate::text::{Line, is_unsafe};

/// The JSON document of acquire, renew and release.
#[derive(Serialize)]
pub(super) struct Done<'a> {
    pub(super) status: &'static str,
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fence: Option<Fence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl_ms: Option<u64>,
    /// The inner `None` means that the hold has no slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<Option<Slot>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revoked: Option<Vec<HolderDocument<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) removed: Option<WaiterDocument<'a>>,
}

impl<'a> Done<'a> {
    pub(super) fn new(status: &'static str, name: &'a Name) -> Self {
        let name = name.as_str();
        Self {
            status,
            name,
            token: None,
            fence: None,
            ttl_ms: None,
            slot: None,
            revoked: None,
            removed: None,
        }
    }

    pub(super) fn with_token(self, token: &'a Token) -> Self {
        Self { token: Some(token.as_str()), ..self }
    }

    pub(super) fn with_revoked(self, holders: Vec<HolderDocument<'a>>) -> Self {
        Self { revoked: Some(holders), ..self }
    }

    pub(super) fn with_removed(self, waiter: WaiterDocument<'a>) -> Self {
        Self { status: "removed", removed: Some(waiter), ..self }
    }

    pub(super) fn with_slot(self, slot: Option<Slot>) -> Self {
        Self { slot: Some(slot), ..self }
    }

    pub(super) fn with_lease(self, fence: Fence, left: Duration) -> Self {
        let ttl_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Self { fence: Some(fence), ttl_ms: Some(ttl_ms), ..self }
    }
}

#[derive(Serialize)]
struct Failed<'a> {
    status: &'static str,
    name: Option<&'a str>,
    exit: i32,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<HolderDocument<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    superseded_by: Option<ClientDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// Prints the JSON document of a command that failed, including the exit status.
pub(super) fn failure(name: Option<&Name>, error: &Error, exit: Exit) -> Result<(), Error> {
    let holders = match error {
        Error::Busy { view, .. } | Error::UnknownId(_, view) | Error::AmbiguousId(_, view) => {
            Some(HolderDocument::all(view))
        }
        _ => None,
    };
    let superseded_by = match error {
        Error::Superseded(newer) => Some(ClientDocument::new(newer)),
        _ => None,
    };
    let operator = match error {
        Error::Removed(operator) => Some(operator),
        _ => None,
    };
    document(&Failed {
        status: error.status(),
        name: name.map(Name::as_str),
        exit: exit.shown(),
        message: Line::new(&error.to_string()).as_str().to_owned(),
        holders,
        superseded_by,
        by: operator.and_then(|operator| operator.name.as_deref()),
        reason: operator.and_then(|operator| operator.reason.as_deref()),
    })
}

/// Prints one JSON document, on one line.
pub(super) fn document(document: &impl Serialize) -> Result<(), Error> {
    text(&json(document)?)
}

/// Returns one JSON document, on one line.
pub(super) fn json(document: &impl Serialize) -> Result<String, Error> {
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
        // The usual case, and a list may have thousands.
        if fragment.bytes().all(|byte| byte < 0x7f) {
            return writer.write_all(fragment.as_bytes());
        }
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

/// Writes all of a text, or fails. This bypasses std's stdout, which ignores a closed descriptor.
pub(super) fn text(text: &str) -> Result<(), Error> {
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    let written = stdout.and_then(|stdout| File::from(stdout).write_all(text.as_bytes()));
    match written {
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
        let json = json(&text).unwrap();
        let line = json.strip_suffix('\n').unwrap();
        assert!(!line.contains(is_unsafe), "{json:?}");
        assert!(line.contains("\\u009b2J\\u202e\\udb40\\udc41ä日"), "{json:?}");
        assert_eq!(serde_json::from_str::<String>(line).unwrap(), text);
    }
}
