//! Why a request got no answer, and what may have become of it.

use std::fmt;
use std::time::Duration;

use crate::rules::UserMessage;

/// Why a request got no answer. The text is for the user: one line, lower case, no period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    pub kind: FailureKind,
    pub fault: UserMessage,
    pub delivery: Delivery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// Connecting failed, the connection broke, or no reply arrived in time.
    Unreachable,
    /// The server answers but cannot serve locks now: it is loading, out of memory, busy with a
    /// script, or too recently started to vote. Or too few servers of a quorum can, or this host
    /// lacks something that is needed to ask.
    Unavailable,
    /// The server is not the one that has the locks: it is a replica. It has never served this run.
    NotHere,
    /// The reply is larger than any lock can be.
    TooLarge,
    /// The user must change something first. The request may have taken effect all the same, if
    /// the server rejected the login but runs scripts for clients that are not logged in.
    Misconfigured,
    /// The request took effect, but too few replicas have confirmed it. `left`: how long the lease of
    /// a renewal lasts at least, whether a failover keeps the renewal or not, from before it was sent.
    Unconfirmed { left: Option<Duration> },
    /// The interrupt came first.
    Interrupted,
}

/// What may have happened to a request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// It did not reach the server, or the server refused it.
    NotExecuted,
    /// The connection broke after it was sent, so it may have taken effect or not.
    Lost,
    /// The server has not answered, so it may have taken effect or still may. Or it has answered, but
    /// the request is not over: an earlier copy or the script may have been executed.
    Pending,
}

use FailureKind::{
    Interrupted, Misconfigured, NotHere, TooLarge, Unavailable, Unconfirmed, Unreachable,
};

impl Failure {
    /// Of a request that has not taken effect.
    pub fn new(kind: FailureKind, fault: UserMessage) -> Self {
        Self { kind, fault, delivery: Delivery::NotExecuted }
    }

    /// A misconfiguration that kept the request from taking effect.
    pub(crate) fn misconfigured(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Misconfigured, UserMessage::new(problem).with_remedy(remedy))
    }

    /// A server that cannot serve locks now.
    pub(crate) fn unavailable(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Unavailable, UserMessage::new(problem).with_remedy(remedy))
    }

    /// No server answered.
    pub fn unreachable(fault: UserMessage, delivery: Delivery) -> Self {
        Self { kind: Unreachable, fault, delivery }
    }

    /// The interrupt came first, before or after the request was sent.
    pub fn interrupted(delivery: Delivery) -> Self {
        Self { kind: Interrupted, fault: UserMessage::new("interrupted"), delivery }
    }

    /// The one of several to report, of which there is at least one: one that the user can fix,
    /// one that shows more than that a server does not answer, or the first.
    pub(crate) fn worst(mut failures: Vec<Self>) -> Self {
        let is_fixable = |it: &Self| matches!(it.kind, Misconfigured | NotHere);
        let fixable = failures.iter().position(is_fixable);
        let telling = || failures.iter().position(|it| !it.is_unreachable());
        let worst = fixable.or_else(telling).unwrap_or(0);
        failures.swap_remove(worst)
    }

    /// The same failure of a location that has served this run, if so: what the user set up was
    /// right then, so it is probably changing.
    pub(crate) fn once_served(self, has_served: bool) -> Self {
        match (self.kind, self.delivery) {
            (Misconfigured, Delivery::NotExecuted) if has_served => {
                Self { kind: Unavailable, ..self }
            }
            _ => self,
        }
    }

    /// The problem without its remedy, for a message with another ending.
    pub(crate) fn problem(&self) -> &str {
        self.fault.problem()
    }

    /// The same failure in other words.
    pub(crate) fn reworded(self, reword: impl FnOnce(&str) -> String) -> Self {
        Self { fault: self.fault.reworded(reword), ..self }
    }

    /// Whether the cause may pass without any action, so that it is worth trying again.
    pub(crate) fn is_transient(&self) -> bool {
        !matches!(self.kind, Misconfigured | TooLarge | Interrupted)
    }

    /// Whether no server has answered this request.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.kind == Unreachable
    }

    /// Whether the server was waited for in vain, so that it is not worth waiting for once more. That
    /// includes one that answered only with an error after all attempts.
    pub(crate) fn was_awaited_in_vain(&self) -> bool {
        self.is_pending() || self.is_unreachable() && self.delivery == Delivery::NotExecuted
    }

    /// Whether the reply to a request that was sent has not arrived in time.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.kind, Unreachable | Unavailable) && self.delivery == Delivery::Pending
    }

    /// Whether the connection broke.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.kind, Unreachable | Unavailable) && self.delivery == Delivery::Lost
    }

    /// The same failure of a server that others, which answer, still name as a master. If it does
    /// not answer, the message says so, with what to do about it.
    pub(crate) fn of_master(self, still_named: &str, remedy: &str) -> Self {
        if !self.is_unreachable() {
            return self;
        }
        let fault = self.fault.reworded(|why| format!("{why}, and {still_named}"));
        Self { fault: fault.with_remedy(remedy), ..self }
    }

    /// The same failure, of a request that may have taken effect all the same: an earlier copy was
    /// lost, only its confirmation failed, or another server has queued it. `Delivery::Pending`
    /// rather than `Delivery::Lost`, because the request has been repeated already.
    pub fn but_maybe_executed(self) -> Self {
        Self { delivery: Delivery::Pending, ..self.outlasted() }
    }

    /// The same failure after it was waited for in vain, or after the server may have executed the
    /// request. So a replica is more likely a master that a failover has replaced than a wrong URL.
    pub(crate) fn outlasted(self) -> Self {
        let kind = if self.kind == NotHere { Unavailable } else { self.kind };
        Self { kind, ..self }
    }

    /// Whether the request may have taken effect even though no reply arrived.
    pub(crate) fn maybe_executed(&self) -> bool {
        self.delivery != Delivery::NotExecuted || matches!(self.kind, TooLarge | Unconfirmed { .. })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_failures_the_one_that_tells_most_is_reported() {
        for (kinds, worst) in [
            ([Unreachable, Unavailable], Unavailable),
            ([Unavailable, Unreachable], Unavailable),
            ([Unavailable, Misconfigured], Misconfigured),
            ([Unreachable, NotHere], NotHere),
            ([Unreachable, Unreachable], Unreachable),
        ] {
            let failures = kinds.map(|kind| Failure::new(kind, UserMessage::new("refused")));
            assert_eq!(Failure::worst(failures.into()).kind, worst);
        }
    }

    #[test]
    fn a_request_sent_twice_may_have_taken_effect_whatever_the_second_error() {
        for kind in [Unreachable, Unavailable, NotHere, Misconfigured, Interrupted] {
            let failure = Failure::new(kind, UserMessage::new("refused"));
            assert!(!failure.maybe_executed(), "{failure:?}");
            let is_transient = failure.is_transient();
            let failure = failure.but_maybe_executed();
            assert!(failure.maybe_executed(), "{failure:?}");
            assert_eq!(failure.is_transient(), is_transient, "{failure:?}");
        }
    }
}
