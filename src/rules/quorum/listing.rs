//! The locks that a majority holds, from the lists of several members.

use std::collections::BTreeMap;

use super::merge::{free_like, merge};
use crate::rules::{Listed, Listing, Name, State, View};

/// Merges the lists of those of `servers` members that answered. A lock that is not on a member's
/// list is free there.
pub(crate) fn merge_listings(
    listings: Vec<Vec<Listed>>,
    servers: usize,
    with_free: bool,
) -> Listing {
    let answered = listings.len();
    let mut views = BTreeMap::<Name, Vec<View>>::new();
    let mut merged = Listing::default();
    for (name, view) in listings.into_iter().flatten() {
        match view {
            Ok(view) => views.entry(name).or_default().push(view),
            Err(failure) => merged.locks.push((name, Err(failure))),
        }
    }
    for (name, mut views) in views {
        views.resize(answered, free_like(&views[0]));
        let view = merge(&views, servers, false);
        if with_free || view.state != State::Free {
            merged.locks.push((name, Ok(view)));
        }
    }
    merged.locks.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    merged
}
