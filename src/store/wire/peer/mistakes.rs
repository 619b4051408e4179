//! Common mistakes in URLs, and what to write instead. No message repeats what could be a user or a
//! password.

use super::Peer;
use crate::text::{is_harmless, shown};

/// The remedy for a URL without a known scheme.
pub(super) const SCHEMES: &str =
    "use redis://, rediss://, unix://, redis+sentinel://, redis+cluster:// or local:";

/// Separate settings from each other, as in `HOST:PORT,password=…,ssl=True`, or from a path.
pub(in crate::store) const SEPARATORS: [char; 5] = [':', '@', ',', ';', '='];

pub(super) const CONNECTION_STRING: &str = "connection string instead of a URL; use a URL such as \
                                 rediss://HOST:PORT, and set RLOCK_PASSWORD";

/// For a file that no shell reads, such as a unit of systemd.
const EXPANDED: &str = "variable is not expanded; write its value";

/// The common mistake in a URL that cannot be parsed, with its remedy.
pub(super) fn find(text: &str) -> Option<String> {
    let first = text.chars().next();
    Some(match text.split_once("://") {
        _ if text.is_empty() => format!("empty; {SCHEMES}"),
        _ if text.contains(char::is_whitespace) => {
            "contains whitespace; repeat --url for each server".into()
        }
        _ if matches!(first, Some('"' | '\'' | '“' | '‘')) => {
            "contains quotes; remove them".into()
        }
        _ if first == Some('$') || text.contains("${") => EXPANDED.into(),
        None => without_slashes(text),
        // Uppercase letters are valid.
        Some((scheme, rest)) => match scheme.to_ascii_lowercase().as_str() {
            "unix" => return in_path(rest),
            "redis" | "rediss" | "valkey" | "valkeys" => return in_servers(rest),
            _ => format!("unknown scheme {}; {SCHEMES}", shown(scheme)),
        },
    })
}

fn without_slashes(text: &str) -> String {
    let (scheme, _) = text.split_once(':').unwrap_or_default();
    let is_anonymous = |it: Peer| it.username.is_none() && !it.has_password();
    let is_server = || Peer::read(&format!("redis://{text}")).is_ok_and(is_anonymous);
    match text {
        "local" | "LOCAL" | "LOCAL:" => "not a URL; use local:".into(),
        _ if text.contains('=') => CONNECTION_STRING.into(),
        _ if text.starts_with(['/', '.', '~']) => "missing scheme; use unix:///PATH".into(),
        // Only a host, perhaps with a port and a database.
        _ if (text.contains(':') || is_harmless(text)) && is_server() => {
            format!("missing scheme; use redis://{text}")
        }
        _ if !scheme.is_empty() && SCHEMES.contains(&format!(" {scheme}://")) => {
            format!("missing '//' after '{scheme}:'; {SCHEMES}")
        }
        _ => format!("missing scheme; {SCHEMES}"),
    }
}

/// A mistake after `redis://`.
fn in_servers(rest: &str) -> Option<String> {
    if let Some(mistake) = in_password(rest) {
        return Some(mistake);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = host.rsplit(']').next().and_then(|rest| rest.rsplit_once(':')).map(|(_, port)| port);
    Some(match port {
        _ if host.contains('$') => EXPANDED.into(),
        _ if host.contains('=') => CONNECTION_STRING.into(),
        _ if host.contains([',', ';']) => {
            "several servers in one URL; separate URLs with spaces in RLOCK_URL".into()
        }
        _ if host.is_empty() || host.starts_with(':') && !host.starts_with("::") => {
            "missing host; use HOST or HOST:PORT".into()
        }
        _ if host.matches(':').count() == 2 && !host.contains("::") && !host.contains(']') => {
            "several ports; use redis://HOST:PORT".into()
        }
        _ if host.matches(':').count() > 1 && !host.contains(']') => {
            "IPv6 address without brackets; write it as in redis://[::1]:6379".into()
        }
        Some(port) if !port.bytes().all(|digit| digit.is_ascii_digit()) => {
            "port is not a number; use 1 to 65535".into()
        }
        Some(port) if !port.is_empty() && port.parse::<u16>().is_err() => {
            "port is out of range; use 1 to 65535".into()
        }
        _ if after.contains("?db=") => "database after '?'; use redis://HOST[:PORT]/DB".into(),
        _ if after.contains('?') => "options after '?'; remove them".into(),
        _ => return None,
    })
}

/// A character that ends the part with the user and the password, although the password goes on.
pub(in crate::store) fn in_password(rest: &str) -> Option<String> {
    let at = rest.find(['/', '?', '#'])?;
    let (before, after) = rest.split_at(at);
    if before.contains('@') || !after.contains('@') {
        return None;
    }
    let (character, code) = match after.as_bytes()[0] {
        b'/' => ('/', "%2F"),
        b'?' => ('?', "%3F"),
        _ => ('#', "%23"),
    };
    Some(format!("'{character}' in a password; write it as {code}, or set RLOCK_PASSWORD"))
}

/// A mistake after `unix://`.
fn in_path(rest: &str) -> Option<String> {
    let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
    let mut options = options.split('&').filter_map(|option| option.split_once('='));
    Some(match options.find(|(name, _)| *name == "db") {
        _ if path.is_empty() => "missing path; use unix:///path/to/socket".into(),
        _ if !path.starts_with('/') => {
            "host in a unix:// URL; use three slashes, as in unix:///path/to/socket".into()
        }
        Some((_, database)) if database.parse::<i64>().is_err() => {
            "db is not a number; use a form such as ?db=0".into()
        }
        _ => return None,
    })
}
