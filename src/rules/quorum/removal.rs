//! Whether a hold was revoked, or a waiter removed.

use super::merge::merge;
use super::votes::Votes;
use crate::rules::Removal;

/// Decides from the votes of at least a majority. What any member did counts: the others may not
/// know the client, because they were away when it came.
pub(crate) fn decide_removal(votes: &Votes<Removal>) -> Removal {
    let found = |is: fn(&Removal) -> bool| votes.values().find(|(_, removal)| is(removal));
    let acted = found(|removal| matches!(removal, Removal::Revoked(..)))
        .or_else(|| found(|removal| matches!(removal, Removal::Removed(..))))
        .or_else(|| found(|removal| matches!(removal, Removal::Gone)));
    if let Some((_, removal)) = acted {
        return removal.clone();
    }
    let views = votes.values().filter_map(|(_, removal)| match removal {
        Removal::Unknown(view) | Removal::Several(view) => Some(view.clone()),
        Removal::Revoked(..) | Removal::Removed(..) | Removal::Gone => None,
    });
    let view = merge(&views.collect::<Vec<_>>(), votes.servers(), false);
    match found(|removal| matches!(removal, Removal::Several(_))) {
        Some(_) => Removal::Several(view),
        None => Removal::Unknown(view),
    }
}
