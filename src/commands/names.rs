//! The name of a lock that nobody uses: probably a mistake.

use crate::rules::{Name, Prefix};
use crate::store::Store;

/// A message about an unknown name, with the most similar one that is known.
pub(super) fn unknown(store: &mut dyn Store, prefix: &Prefix, name: &Name) -> String {
    let listing = store.list(prefix, None, true).unwrap_or_default();
    let names = listing.locks.iter().map(|(name, _)| name);
    // Users who know the key type it.
    let bare = name.as_str().strip_prefix(prefix.as_str()).and_then(|bare| bare.parse().ok());
    let nearest = bare.as_ref().unwrap_or(name).nearest(names);
    let nearest = nearest.map_or(String::new(), |it| format!("; nearest name: {it}"));
    format!("never used, or not in the past day{nearest}")
}
