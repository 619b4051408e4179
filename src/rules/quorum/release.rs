//! Whether a majority released a hold.

use super::majority::first_known;
use super::votes::Votes;
use crate::rules::{Delivery, Release};

/// What the votes on a release mean.
pub enum ReleaseDecision {
    Decided(Release),
    /// Only `answered` members answered, which is too few. Some may have released the hold.
    TooFew {
        answered: usize,
        maybe_released: bool,
    },
}

/// Whether further votes cannot change the decision.
pub fn is_release_decided(votes: &Votes<Release>) -> bool {
    votes.count(|release| !is_not_held(release)) >= votes.majority() || votes.too_many(is_not_held)
}

/// Decides from the votes of members. `maybe_released`: an earlier release of the same hold reached
/// some members but not enough.
pub fn decide_release(votes: &Votes<Release>, maybe_released: bool) -> ReleaseDecision {
    let released = votes.count(|release| *release == Release::Released);
    if votes.too_many(is_not_held) {
        let reasons = votes.values().filter_map(|(_, release)| match release {
            Release::NotHeld(why) => Some(why.clone()),
            Release::Released | Release::Unknown => None,
        });
        let why = first_known(reasons);
        let release = if maybe_released { Release::Unknown } else { Release::NotHeld(why) };
        return ReleaseDecision::Decided(release);
    }
    let answered = votes.count(|_| true);
    if answered < votes.majority() {
        let maybe_released = maybe_released || released > 0 || votes.fate() != Delivery::NotSent;
        return ReleaseDecision::TooFew { answered, maybe_released };
    }
    ReleaseDecision::Decided(if released > 0 { Release::Released } else { Release::Unknown })
}

fn is_not_held(release: &Release) -> bool {
    matches!(release, Release::NotHeld(_))
}
