//! Results on stdout, for people, scripts and programs.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

use anyhow::Context;
use serde::Serialize;

use crate::duration::Ttl;
use crate::error::Error;
use crate::inspect::json::HolderDocument;
use crate::inspect::table::Style;
use crate::lock::{Fence, Name, Token};
use crate::view::View;

/// Who reads it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Human,
    Json,
    /// A shell, which evaluates it.
    Shell,
}

impl From<bool> for Output {
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Human }
    }
}

/// The document of acquire, renew and release.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evicted: Option<Vec<HolderDocument<'a>>>,
}

impl<'a> Done<'a> {
    pub(super) fn new(status: &'static str, name: &'a Name) -> Self {
        Self { status, name: name.as_str(), token: None, fence: None, ttl_ms: None, evicted: None }
    }

    pub(super) fn with_token(self, token: &'a Token) -> Self {
        Self { token: Some(token.as_str()), ..self }
    }

    pub(super) fn with_evicted(self, before: &'a View) -> Self {
        Self { evicted: Some(HolderDocument::all(before)), ..self }
    }

    pub(super) fn with_lease(self, fence: Fence, ttl: Ttl) -> Self {
        Self { fence: Some(fence), ttl_ms: Some(ttl.as_millis()), ..self }
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
}

/// The document of anything that failed.
pub(super) fn failure(name: Option<&Name>, error: &Error) -> Result<(), Error> {
    let holders = match error {
        Error::Busy { view, .. } => Some(HolderDocument::all(view)),
        _ => None,
    };
    document(&Failed {
        status: error.status(),
        name: name.map(Name::as_str),
        exit: error.exit().shown(),
        message: error.to_string(),
        holders,
    })
}

/// One JSON document, on a line of its own.
pub(super) fn document(document: &impl Serialize) -> Result<(), Error> {
    text(&json(document)?)
}

/// The same as text.
pub(super) fn json(document: &impl Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string(document).context("cannot write JSON")? + "\n")
}

/// What stdout shows, if it is a terminal.
#[derive(Clone, Copy)]
pub(super) struct Screen {
    /// Columns and lines.
    size: Option<(usize, usize)>,
}

impl Screen {
    pub(super) fn of_stdout() -> Self {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        // One that does not know its size says 0, and has the usual one as a rule.
        let or = |count: usize, usual| if count == 0 { usual } else { count };
        Self { size: size.map(|(columns, lines)| (or(columns, 80), or(lines, 24))) }
    }

    /// Colour is for people who have not said that they want none (no-color.org).
    pub(super) fn style(self) -> Style {
        let said = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let colour = self.size.is_some() && !said("NO_COLOR") && !dumb;
        Style { width: self.size.map(|(columns, _)| columns), colour }
    }

    /// Text in place of what was there before: each line is overwritten, and only then what is left
    /// of the old one deleted, so that nothing flickers. What does not fit is left out. As it is
    /// where there is no terminal.
    pub(super) fn redrawn(self, text: &str, first: bool) -> String {
        let Some((_, lines)) = self.size else { return text.to_owned() };
        let clear = if first { "\x1b[2J" } else { "" };
        let shown = text.lines().take(lines - 1).map(|line| format!("{line}\x1b[K\n"));
        format!("{clear}\x1b[H{}\x1b[J", shown.collect::<String>())
    }
}

/// Text to the last byte, or an error: a result that nobody got is no result. Not through std's
/// stdout, which takes a closed descriptor for a success.
pub(super) fn text(text: &str) -> Result<(), Error> {
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    let written = stdout.and_then(|stdout| File::from(stdout).write_all(text.as_bytes()));
    match written {
        // As most programs do, by their death of SIGPIPE, which we do not die of.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Error::Unread),
        written => {
            written.map_err(|error| Error::system("cannot write to standard output", &error))
        }
    }
}
