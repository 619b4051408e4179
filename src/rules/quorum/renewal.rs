//! Whether a majority renewed a hold.

use std::time::Duration;

use super::majority::{first_known, most_common, required};
use super::votes::Votes;
use crate::rules::{Fence, Mode, Reason, Renewal};

/// What the votes on a renewal mean.
pub enum RenewalDecision {
    Renewed {
        fence: Fence,
        /// The shortest lease among the members that renewed it.
        left: Duration,
        mode: Mode,
        /// The members that have lost the hold.
        lost: Vec<usize>,
    },
    NotHeld(Reason),
    /// Only `renewed` members renewed it.
    TooFew {
        renewed: usize,
        required: usize,
        /// The members that have lost the hold.
        lost: Vec<usize>,
    },
}

/// Whether further votes cannot change the decision.
pub fn is_renewal_decided(votes: &Votes<Renewal>) -> bool {
    let required = required_by(votes);
    votes.count(|renewal| !is_not_held(renewal)) >= required
        || votes.too_many(is_not_held, required)
}

/// Decides from the votes of members.
pub fn decide_renewal(votes: &Votes<Renewal>) -> RenewalDecision {
    let required = required_by(votes);
    if votes.too_many(is_not_held, required) {
        let reasons = votes.values().filter_map(|(_, renewal)| match renewal {
            Renewal::NotHeld(why) => Some(why.clone()),
            Renewal::Renewed { .. } => None,
        });
        return RenewalDecision::NotHeld(first_known(reasons));
    }
    let renewed = votes.values().filter_map(|(_, renewal)| match renewal {
        Renewal::Renewed { fence, left, .. } => Some((*fence, *left)),
        Renewal::NotHeld(_) => None,
    });
    let (fences, lefts): (Vec<Fence>, Vec<Duration>) = renewed.unzip();
    let lost = votes.values().filter(|(_, renewal)| is_not_held(renewal));
    let lost = lost.map(|(number, _)| number).collect();
    match most_common(&fences) {
        Some(fence) if fences.len() >= required => {
            let left = lefts.into_iter().min().unwrap_or_default();
            RenewalDecision::Renewed { fence, left, mode: mode_in(votes), lost }
        }
        _ => RenewalDecision::TooFew { renewed: fences.len(), required, lost },
    }
}

/// The mode of the hold. While no member has named it, the one that needs the fewest members.
fn mode_in(votes: &Votes<Renewal>) -> Mode {
    let mode = votes.values().find_map(|(_, renewal)| match renewal {
        Renewal::Renewed { mode, .. } => Some(*mode),
        Renewal::NotHeld(_) => None,
    });
    mode.unwrap_or(Mode::Exclusive)
}

/// How many members must have the hold.
fn required_by(votes: &Votes<Renewal>) -> usize {
    required(mode_in(votes), votes.servers())
}

fn is_not_held(renewal: &Renewal) -> bool {
    matches!(renewal, Renewal::NotHeld(_))
}
