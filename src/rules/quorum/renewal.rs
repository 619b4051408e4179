//! Whether a majority renewed a hold.

use std::time::Duration;

use super::majority::{first_known, most_common};
use super::votes::Votes;
use crate::rules::quorum::Held;
use crate::rules::{Failure, FailureKind, Reason, Renewal};

/// What the votes on a renewal mean.
pub enum RenewalDecision {
    Renewed {
        held: Held,
        /// The shortest lease among the members that renewed it, now and before.
        left: Duration,
        before: Duration,
        /// The members that have lost the hold.
        lost: Vec<usize>,
    },
    NotHeld(Reason),
    /// Only `renewed` members renewed it.
    TooFew {
        renewed: usize,
        /// The members that have lost the hold.
        lost: Vec<usize>,
        /// How long a majority keeps the lease at least, if the replicas of some have not confirmed it.
        left: Option<Duration>,
    },
}

/// Whether further votes cannot change the decision.
pub(crate) fn is_renewal_decided(votes: &Votes<Renewal>) -> bool {
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
        Renewal::Renewed { left, before, .. } if has(renewal, held) => Some((*left, *before)),
        _ => None,
    });
    let (lefts, befores): (Vec<Duration>, Vec<Duration>) = lefts.unzip();
    match held {
        Some(held) if lefts.len() >= votes.majority() => {
            let [left, before] =
                [lefts, befores].map(|all| all.into_iter().min().unwrap_or_default());
            RenewalDecision::Renewed { held, left, before, lost }
        }
        _ => {
            RenewalDecision::TooFew { renewed: lefts.len(), lost, left: unconfirmed(votes, lefts) }
        }
    }
}

/// How long a majority keeps a lease that these members renewed for so long, and that others renewed
/// without enough replicas.
fn unconfirmed(votes: &Votes<Renewal>, mut lefts: Vec<Duration>) -> Option<Duration> {
    lefts.extend(votes.votes.iter().filter_map(|vote| match vote {
        Some(Err(Failure { kind: FailureKind::Unconfirmed { left }, .. })) => *left,
        _ => None,
    }));
    lefts.sort_unstable_by(|one, other| other.cmp(one));
    lefts.get(votes.majority() - 1).copied()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Delivery, Fence, Slot, UserMessage};

    /// What each member answered: a digit for a renewal of that slot, for so many seconds, `u`
    /// without enough replicas, for 5 s at least, `n` not held, `f` failed, `-` nothing.
    fn votes(answers: &str) -> Votes<Renewal> {
        let vote = |answer: char| match answer {
            'u' => {
                let kind = FailureKind::Unconfirmed { left: Some(Duration::from_secs(5)) };
                Some(Err(Failure::new(kind, UserMessage::new("0 of 1"))))
            }
            'n' => Some(Ok(Renewal::NotHeld(Reason::unknown()))),
            'f' => Some(Err(Failure::interrupted(Delivery::NotExecuted))),
            '-' => None,
            digit => {
                let slot = digit.to_digit(10).and_then(Slot::new);
                let left = Duration::from_secs(slot.map_or(0, Slot::get).into());
                let before = Duration::from_secs(1);
                Some(Ok(Renewal::Renewed { left, fence: Fence(7), slot, before }))
            }
        };
        Votes { votes: answers.chars().map(vote).collect(), asked: vec![true; answers.len()] }
    }

    #[test]
    fn a_majority_with_the_same_slot_decides_a_renewal() {
        for (answers, is_decided, expected) in [
            ("11-", true, "renewed 1 []"),
            ("1n1", true, "renewed 1 [1]"),
            ("121", true, "renewed 1 [1]"),
            ("1--", false, "too few 1 []"),
            ("1nf", false, "too few 1 [1]"),
            ("1fff-", false, "too few 1 []"),
            // Two of three last for 5 s, and then a failover may lose one of them.
            ("uu-", false, "too few 0 [] 5s"),
            ("9u-", false, "too few 1 [] 5s"),
            ("9un", false, "too few 1 [2] 5s"),
            ("u--", false, "too few 0 []"),
            ("nn-", true, "not held"),
            ("n12", true, "not held"),
            ("nnn11", true, "not held"),
            ("nn11-", false, "too few 2 [0, 1]"),
        ] {
            let votes = votes(answers);
            assert_eq!(is_renewal_decided(&votes), is_decided, "{answers}");
            let decided = match decide_renewal(&votes) {
                RenewalDecision::Renewed { left, lost, .. } => {
                    format!("renewed {} {lost:?}", left.as_secs())
                }
                RenewalDecision::NotHeld(_) => "not held".into(),
                RenewalDecision::TooFew { renewed, lost, left } => {
                    let left = left.map_or(String::new(), |left| format!(" {}s", left.as_secs()));
                    format!("too few {renewed} {lost:?}{left}")
                }
            };
            assert_eq!(decided, expected, "{answers}");
        }
    }
}
