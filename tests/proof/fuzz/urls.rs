//! URLs.

use std::path::Path;

use super::promises::{SECRET, one_line, text};
use rlock::store::location::{Credentials, Location, TlsFiles};
use rlock::text::at_most;

/// How a password may get into a URL, right or wrong.
const MARKS: [[&str; 2]; 6] =
    [["://:", "@"], [":", ""], [",password=", ""], ["?pass=", "&"], ["=", ""], ["@", "@"]];

/// Checks URLs, one per word, as in RLOCK_URL. Wherever a password is put into one of them, it is
/// never shown.
pub fn urls(bytes: &[u8]) {
    let text = &*text(bytes);
    let urls: Vec<&str> = text.split_whitespace().collect();
    check(&urls);
    let place = bytes.iter().fold(0, |sum, byte| sum + usize::from(*byte));
    for (number, url) in urls.iter().enumerate() {
        let [before, after] = MARKS[(place + number) % MARKS.len()];
        let at = at_most(place % (url.len() + 1), url).len();
        let (start, end) = match url.split_once("://") {
            Some(parts) if before == "://:" => parts,
            _ => url.split_at(at),
        };
        let with_secret = format!("{start}{before}{SECRET}{after}{end}");
        let shown = check(&[&with_secret]);
        // An input may contain it elsewhere. No password belongs to a directory.
        let is_allowed = text.contains(SECRET) || with_secret.starts_with("local:/");
        assert!(is_allowed || !shown.contains(SECRET), "{with_secret:?}: {shown}");
    }
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
    let shown = location.to_string();
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
