//! What to do about a command line that clap refuses.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::text::masked;

/// What other tools call the subcommands.
const SUBCOMMANDS: [(&str, &[&str]); 5] = [
    ("acquire", &["lock", "get", "take"]),
    ("release", &["unlock", "free", "delete", "rm", "break", "force-unlock"]),
    ("renew", &["extend", "refresh"]),
    ("exec", &["run", "with"]),
    ("inspect", &["list", "ls", "status", "show", "info"]),
];

/// What other tools call the options.
const OPTIONS: [(&str, &[&str]); 4] = [
    ("--nonblock (-n)", &["--nowait", "--no-wait", "--nb", "--non-blocking", "--nonblocking"]),
    ("--ttl (-t)", &["--expire", "--expiry", "--lease"]),
    ("--url", &["--host", "--server"]),
    ("rlock --version", &["-V", "--version"]),
];

/// Turns clap's message of several lines into one: the problem and one remedy.
pub(crate) fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no subcommand; use exec, acquire, renew, release or inspect".into();
    }
    // Before the cut below, which could remove the end of a password.
    let text = masked(&error.render().to_string());
    let line = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = line(text.split("\n\n").next().unwrap_or_default());
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    // Show only a part of a value that is far too long.
    let what: String = what.chars().take(400).collect();
    // The error of an invalid value contains its own remedy.
    if error.kind() == ErrorKind::ValueValidation && what.contains("; ") {
        return what;
    }
    if let Some(remedy) = remedy(error) {
        return format!("{what}; {remedy}");
    }
    let tip = text.lines().find_map(|line| line.trim_start().strip_prefix("tip: "));
    // It may quote an argument.
    if let Some(tip) = tip.map(line) {
        return match tip.split_once(" exists: ") {
            Some((_, similar)) => format!("{what}; use {similar}"),
            None => format!("{what}; {tip}"),
        };
    }
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: rlock "));
    let subcommand = usage.and_then(|usage| usage.split(' ').next());
    let subcommand = subcommand.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    match subcommand {
        Some(subcommand) => format!("{what}; run rlock {subcommand} --help"),
        None => format!("{what}; run rlock --help"),
    }
}

/// What the user probably meant, where clap's own guess would mislead.
fn remedy(error: &clap::Error) -> Option<String> {
    let value = |kind| match error.get(kind) {
        Some(ContextValue::String(value)) => Some(value.as_str()),
        _ => None,
    };
    let meant = |words: &[(&'static str, &[&str])], given: &str| {
        let given = given.split('=').next().unwrap_or_default();
        let found = words.iter().find(|(_, others)| others.contains(&given));
        found.map(|(word, _)| format!("use {word}"))
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => meant(&SUBCOMMANDS, value(ContextKind::InvalidSubcommand)?),
        ErrorKind::UnknownArgument => {
            let given = value(ContextKind::InvalidArg)?;
            let is_negative =
                given.strip_prefix('-').is_some_and(|rest| rest.parse::<f64>().is_ok());
            match is_negative {
                true => Some("use a number that is not negative".into()),
                false => meant(&OPTIONS, given),
            }
        }
        _ => None,
    }
}
