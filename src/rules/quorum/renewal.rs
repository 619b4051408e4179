//! Whether a majority renewed a hold.

use std::time::Duration;

use super::majority::{first_known, most_common};
use super::votes::Votes;
use crate::rules::{Held, Reason, Renewal};

/// What the votes on a renewal mean.
pub enum RenewalDecision {
    Renewed {
        held: Held,
        /// The shortest lease among the members that renewed it.
        left: Duration,
        /// The members that have lost the hold.
        lost: Vec<usize>,
    },
    NotHeld(Reason),
    /// Only `renewed` members renewed it.
    TooFew {
        renewed: usize,
        /// The members that have lost the hold.
        lost: Vec<usize>,
    },
}

/// Whether further votes cannot change the decision.
pub fn is_renewal_decided(votes: &Votes<Renewal>) -> bool {
    let held = held_in(votes);
    votes.count(|renewal| has(renewal, held)) >= votes.majority()
        || votes.too_many(|renewal| !has(renewal, held))
}

/// Decides from the votes of members.
pub fn decide_renewal(votes: &Votes<Renewal>) -> RenewalDecision {
    let held = held_in(votes);
    if votes.too_many(|renewal| !has(renewal, held)) {
        let reasons = votes.values().filter_map(|(_, renewal)| match renewal {
            Renewal::NotHeld(why) => Some(why.clone()),
            Renewal::Renewed { .. } => None,
        });
        return RenewalDecision::NotHeld(first_known(reasons));
    }
    let lost = votes.values().filter(|(_, renewal)| !has(renewal, held));
    let lost = lost.map(|(number, _)| number).collect();
    let lefts = votes.values().filter_map(|(_, renewal)| match renewal {
        Renewal::Renewed { left, .. } if has(renewal, held) => Some(*left),
        _ => None,
    });
    let lefts: Vec<Duration> = lefts.collect();
    match held {
        Some(held) if lefts.len() >= votes.majority() => {
            let left = lefts.into_iter().min().unwrap_or_default();
            RenewalDecision::Renewed { held, left, lost }
        }
        _ => RenewalDecision::TooFew { renewed: lefts.len(), lost },
    }
}

/// The hold that most members renewed.
fn held_in(votes: &Votes<Renewal>) -> Option<Held> {
    let held = votes.values().filter_map(|(_, renewal)| match renewal {
        Renewal::Renewed { fence, slot, .. } => Some((*fence, *slot)),
        Renewal::NotHeld(_) => None,
    });
    most_common(&held.collect::<Vec<_>>())
}

/// Whether a member has this hold. It may have another one of the same token, for another slot, from
/// a commit that too few members answered.
fn has(renewal: &Renewal, held: Option<Held>) -> bool {
    matches!(renewal, Renewal::Renewed { slot, .. } if held.is_some_and(|held| held.1 == *slot))
}
