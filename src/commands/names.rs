//! The name of a lock that nobody uses: probably a mistake.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use crate::rules::{Instant, Name, Prefix};
use crate::store::Store;

/// How long the search for a suggestion may take. The server may have millions of other keys.
const SEARCH_TIME: Duration = Duration::from_millis(20);

/// A message about an unknown name. If it `suggests` and a person reads it on a terminal, with the
/// most similar one of the names that are found in time.
pub(super) fn unknown(
    store: &mut dyn Store,
    prefix: &Prefix,
    name: &Name,
    suggests: bool,
) -> String {
    let known = match suggests && stderr().is_terminal() {
        true => store.names(prefix, Instant::now() + SEARCH_TIME),
        false => Vec::new(),
    };
    // Users who know the key type it.
    let bare = name.as_str().strip_prefix(prefix.as_str()).and_then(|bare| bare.parse().ok());
    let nearest = bare.as_ref().unwrap_or(name).nearest(known.iter());
    let nearest = nearest.map_or(String::new(), |it| format!("; nearest name: {it}"));
    format!("never used, or not in the past day{nearest}")
}
