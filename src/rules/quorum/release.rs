//! Whether a majority released a hold.

use super::majority::first_known;
use super::votes::Votes;
use crate::rules::{Delivery, Release};

/// What the votes on a release mean.
pub(crate) enum ReleaseDecision {
    Decided(Release),
    /// Only `answered` members answered, which is too few. Some may have released the hold.
    TooFew {
        answered: usize,
        maybe_released: bool,
    },
}

/// Whether further votes cannot change the decision.
pub(crate) fn is_release_decided(votes: &Votes<Release>) -> bool {
    votes.count(|release| !is_not_held(release)) >= votes.majority() || votes.too_many(is_not_held)
}

/// Decides from the votes of members. `maybe_released`: an earlier release of the same hold reached
/// some members but not enough.
pub(crate) fn decide_release(votes: &Votes<Release>, maybe_released: bool) -> ReleaseDecision {
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
        let maybe_released =
            maybe_released || released > 0 || votes.delivery() != Delivery::NotExecuted;
        return ReleaseDecision::TooFew { answered, maybe_released };
    }
    ReleaseDecision::Decided(if released > 0 { Release::Released } else { Release::Unknown })
}

fn is_not_held(release: &Release) -> bool {
    matches!(release, Release::NotHeld(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Failure, Reason};

    /// What each member answered: `r` released, `u` unknown, `n` not held, `f` failed, `-` nothing.
    fn votes(answers: &str) -> Votes<Release> {
        let vote = |answer| match answer {
            'r' => Some(Ok(Release::Released)),
            'u' => Some(Ok(Release::Unknown)),
            'n' => Some(Ok(Release::NotHeld(Reason::unknown()))),
            'f' => Some(Err(Failure::interrupted(Delivery::NotExecuted))),
            _ => None,
        };
        Votes { votes: answers.chars().map(vote).collect(), asked: vec![true; answers.len()] }
    }

    #[test]
    fn a_majority_decides_a_release() {
        for (answers, is_decided, expected) in [
            ("rr-", true, Some(Release::Released)),
            ("ru-", true, Some(Release::Released)),
            ("uu-", true, Some(Release::Unknown)),
            ("rn-", false, Some(Release::Released)),
            ("rnf", false, Some(Release::Released)),
            ("nn-", true, Some(Release::NotHeld(Reason::unknown()))),
            ("r--", false, None),
            ("nff", false, None),
            ("rr---", false, None),
            ("nnn--", true, Some(Release::NotHeld(Reason::unknown()))),
            ("rnn--", false, Some(Release::Released)),
        ] {
            let votes = votes(answers);
            assert_eq!(is_release_decided(&votes), is_decided, "{answers}");
            let decided = match decide_release(&votes, false) {
                ReleaseDecision::Decided(release) => Some(release),
                ReleaseDecision::TooFew { .. } => None,
            };
            assert_eq!(decided, expected, "{answers}");
        }
    }

    #[test]
    fn a_release_that_may_have_taken_effect_is_not_reported_as_not_held() {
        for (answers, before, maybe) in [
            ("rff", false, true),
            ("uff", false, false),
            ("uf-", false, true),
            ("fff", false, false),
            ("fff", true, true),
        ] {
            let decision = decide_release(&votes(answers), before);
            let ReleaseDecision::TooFew { answered, maybe_released } = decision else {
                panic!("{answers}");
            };
            let all = answers.chars().filter(|answer| !"f-".contains(*answer)).count();
            assert_eq!((answered, maybe_released), (all, maybe), "{answers}");
        }
        let decision = decide_release(&votes("nn-"), true);
        assert!(matches!(decision, ReleaseDecision::Decided(Release::Unknown)));
    }
}
