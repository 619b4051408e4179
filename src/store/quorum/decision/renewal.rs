//! Whether a majority renewed a hold.

use std::time::Duration;

use super::majority::{first_known, most_common};
use super::votes::Votes;
use crate::lock::Fence;
use crate::lock::view::Reason;
use crate::store::Renewal;

/// What the votes on a renewal mean.
pub(crate) enum RenewalDecision {
    Renewed {
        fence: Fence,
        /// The shortest lease among the members that renewed it.
        left: Duration,
        /// The members that have lost the hold.
        lost: Vec<usize>,
    },
    NotHeld(Reason),
    /// Only this number of members renewed it, which is too few.
    TooFew {
        renewed: usize,
        /// The members that have lost the hold.
        lost: Vec<usize>,
    },
}

/// Whether further votes cannot change the decision.
pub(crate) fn is_renewal_decided(votes: &Votes<Renewal>, required: usize) -> bool {
    votes.count(|renewal| !is_not_held(renewal)) >= required || is_lost(votes, required)
}

/// Decides from the votes of members, of which `required` must have the hold.
pub(crate) fn decide_renewal(votes: &Votes<Renewal>, required: usize) -> RenewalDecision {
    if is_lost(votes, required) {
        let reasons = votes.values().filter_map(|(_, renewal)| match renewal {
            Renewal::NotHeld(why) => Some(why.clone()),
            Renewal::Renewed { .. } => None,
        });
        return RenewalDecision::NotHeld(first_known(reasons));
    }
    let renewed = votes.values().filter_map(|(_, renewal)| match renewal {
        Renewal::Renewed { fence, left } => Some((*fence, *left)),
        Renewal::NotHeld(_) => None,
    });
    let (fences, lefts): (Vec<Fence>, Vec<Duration>) = renewed.unzip();
    let lost = votes.values().filter(|(_, renewal)| is_not_held(renewal));
    let lost = lost.map(|(number, _)| number).collect();
    match most_common(&fences) {
        Some(fence) if fences.len() >= required => {
            let left = lefts.into_iter().min().unwrap_or_default();
            RenewalDecision::Renewed { fence, left, lost }
        }
        _ => RenewalDecision::TooFew { renewed: fences.len(), lost },
    }
}

/// Whether too many members lack the hold for the others to be enough.
fn is_lost(votes: &Votes<Renewal>, required: usize) -> bool {
    votes.count(is_not_held) > votes.servers() - required
}

fn is_not_held(renewal: &Renewal) -> bool {
    matches!(renewal, Renewal::NotHeld(_))
}
