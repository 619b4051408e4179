//! URLs.

use std::path::Path;

use super::promises::{one_line, text};
use rlock::store::location::{Credentials, Location, TlsFiles};

/// What must never be shown.
const PASSWORD: &str = "S3CR3T";

/// Checks URLs, one per word, as in RLOCK_URL. The same URL with a password is never shown with it.
pub fn urls(bytes: &[u8]) {
    let text = &*text(bytes);
    let urls: Vec<&str> = text.split_whitespace().collect();
    check(&urls);
    let with_password = |url: &&str| {
        let (scheme, rest) = url.split_once("://")?;
        // Not within the path of a local: or unix: URL.
        let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
        is_scheme.then(|| format!("{scheme}://:{PASSWORD}@{rest}"))
    };
    let with_password: Vec<String> = urls.iter().filter_map(with_password).collect();
    let with_password: Vec<&str> = with_password.iter().map(String::as_str).collect();
    let shown = check(&with_password);
    // An input may contain it elsewhere.
    assert!(text.contains(PASSWORD) || !shown.contains(PASSWORD), "{with_password:?}: {shown}");
}

/// Reads URLs, and returns all that users see of them.
fn check(urls: &[&str]) -> String {
    let location = match Location::parse(urls, Some(Path::new("/default"))) {
        Ok(location) => location,
        Err(message) => {
            one_line(&message);
            return message;
        }
    };
    let shown = match &location {
        Location::Server(server) => server.to_string(),
        Location::Quorum(servers) | Location::Cluster(servers) => {
            servers.iter().map(|server| format!("{server} ")).collect()
        }
        Location::Sentinels(_) | Location::Local(_) => String::new(),
    };
    let nothing = Credentials::default();
    let _ = location.has_password();
    match location.with(&nothing, &nothing, &TlsFiles::default()) {
        Ok(_) => shown,
        Err(message) => {
            one_line(&message);
            shown + &message
        }
    }
}
