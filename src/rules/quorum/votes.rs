//! What each member of a quorum answered to one request.

use super::majority::{blocking, majority};
use crate::rules::FailureKind::{NotHere, Unavailable};
use crate::rules::{Delivery, Failure, FailureKind, UserMessage};

/// The answers of all members to one request.
pub struct Votes<T> {
    /// One per member, in order; `None` if it has not answered.
    pub votes: Vec<Option<Result<T, Failure>>>,
    /// Whether the request was sent to the member.
    pub asked: Vec<bool>,
}

impl<T> Votes<T> {
    /// The votes before any of `members` members has been asked.
    pub fn new(members: usize) -> Self {
        let votes = std::iter::repeat_with(|| None).take(members).collect();
        Self { votes, asked: vec![false; members] }
    }

    /// How many members the quorum has, whether they answered or not.
    pub(crate) fn servers(&self) -> usize {
        self.votes.len()
    }

    /// The answers that are not failures, with the numbers of the members.
    pub fn values(&self) -> impl Iterator<Item = (usize, &T)> {
        self.votes.iter().enumerate().filter_map(|(number, vote)| match vote {
            Some(Ok(value)) => Some((number, value)),
            _ => None,
        })
    }

    /// The answers that are not failures.
    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.votes.into_iter().flatten().flatten()
    }

    /// How many answers that are not failures satisfy `is`.
    pub(crate) fn count(&self, is: impl Fn(&T) -> bool) -> usize {
        self.values().filter(|(_, value)| is(value)).count()
    }

    /// How many members are a majority.
    pub fn majority(&self) -> usize {
        majority(self.servers())
    }

    /// Whether so many answers satisfy `is` that the other members are not a majority.
    pub(crate) fn too_many(&self, is: impl Fn(&T) -> bool) -> bool {
        self.count(is) >= blocking(self.servers())
    }

    /// What may have happened to the request on the members that did not answer it.
    pub(crate) fn delivery(&self) -> Delivery {
        let maybe = self.votes.iter().zip(&self.asked).any(|(vote, asked)| match vote {
            Some(Err(failure)) => failure.maybe_executed(),
            Some(Ok(_)) => false,
            None => *asked,
        });
        if maybe { Delivery::Pending } else { Delivery::NotExecuted }
    }

    /// Why only `useful` votes can be used, fewer than a majority. `names` are the members' in order.
    pub fn too_few<'a>(&self, names: impl Iterator<Item = &'a str>, useful: usize) -> Failure {
        let (servers, required) = (self.servers(), self.majority());
        let lasting = self.votes.iter().filter_map(|vote| match vote {
            Some(Err(failure)) if failure.kind == FailureKind::Misconfigured => Some(failure),
            _ => None,
        });
        let lasting: Vec<_> = lasting.collect();
        let failures = names.zip(&self.votes).filter_map(|(name, vote)| match vote {
            Some(vote) => vote.as_ref().err().map(|failure| failure.problem().to_owned()),
            None => Some(format!("{name} did not answer")),
        });
        let why = failures.collect::<Vec<_>>().join("; ");
        let what = format!("{useful} of {servers} servers usable, {required} required ({why})");
        // If the other members are too few, waiting does not help: the user must fix one of these.
        if servers - lasting.len() < required {
            let remedy = lasting.iter().find_map(|it| it.fault.remedy()).unwrap_or_default();
            let failure = Failure::misconfigured(what, remedy);
            let executed = lasting.iter().any(|failure| failure.maybe_executed());
            return if executed { failure.but_maybe_executed() } else { failure };
        }
        // Prefer the failure of a server that may recover, and then one of a server that answers.
        let recovery = self.votes.iter().find_map(|vote| match vote {
            Some(Err(Failure { kind: Unavailable | NotHere, fault, .. })) => fault.remedy(),
            _ => None,
        });
        let recovery = recovery.or_else(|| lasting.iter().find_map(|it| it.fault.remedy()));
        let restore = || format!("restore {} of these servers", required.saturating_sub(useful));
        let fault =
            UserMessage::new(what).with_remedy(recovery.map_or_else(restore, str::to_owned));
        let is_absent = |vote: &Option<Result<T, Failure>>| match vote {
            Some(vote) => vote.as_ref().is_err_and(Failure::is_unreachable),
            None => true,
        };
        if self.votes.iter().all(is_absent) {
            Failure::unreachable(fault, self.delivery())
        } else {
            Failure::new(Unavailable, fault)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misconfigured_minority_does_not_end_a_wait_that_the_others_could_end() {
        for (misconfigured, is_transient) in [(1, true), (2, true), (3, false)] {
            let mut votes = Votes::<()>::new(5);
            votes.votes.fill(Some(Err(Failure::unavailable("full", "free memory"))));
            votes.votes[..misconfigured].fill(Some(Err(Failure::misconfigured("password", "set"))));
            let failure = votes.too_few([""; 5].into_iter(), 0);
            assert_eq!(failure.is_transient(), is_transient, "{misconfigured}: {failure}");
            let told = if is_transient { "; free memory" } else { "; set" };
            assert!(failure.to_string().ends_with(told), "{failure}");
        }
    }
}
