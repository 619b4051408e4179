//! Why a request got no answer, and what may have become of it.

use std::fmt;
use std::time::Duration;

use crate::rules::UserMessage;

/// Why a request got no answer. The texts are for the user: one line, lower case, no period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Connecting failed, the connection broke, or no reply arrived in time. `others_answer`:
    /// sentinels or other nodes of the cluster answered, or the server itself did before.
    Unreachable { fault: UserMessage, delivery: Delivery, others_answer: bool },
    /// The server answers but cannot serve locks now: it is loading, out of memory, busy with a
    /// script, or too recently started to vote. Or too few servers of a quorum can, or this host
    /// lacks something that is needed to ask.
    Unavailable(UserMessage),
    /// The server is not the one that has the locks: it is a replica. It has never served this run.
    NotHere(UserMessage),
    /// The reply is larger than any lock can be.
    TooLarge(UserMessage),
    /// The user must change something first. `executed`: the request may have taken effect all
    /// the same, because the server rejected the login but runs scripts for clients that are not
    /// logged in.
    Misconfigured { fault: UserMessage, executed: bool },
    /// The request took effect, but too few replicas have confirmed it. `left`: how long the lease of
    /// a renewal lasts at least, whether a failover keeps the renewal or not, from before it was sent.
    Unconfirmed { fault: UserMessage, left: Option<Duration> },
    /// The interrupt came first. `sent`: the request may have taken effect.
    Interrupted { sent: bool },
}

/// What may have happened to a request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// It did not reach the server.
    NotSent,
    /// The connection broke after it was sent, so it may have taken effect or not.
    Lost,
    /// The server has not answered, so it may have taken effect or still may.
    Pending,
}

impl Failure {
    /// A misconfiguration that kept the request from taking effect.
    pub(crate) fn misconfigured(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let fault = UserMessage::new(problem).with_remedy(remedy);
        Self::Misconfigured { fault, executed: false }
    }

    /// A server that cannot serve locks now.
    pub(crate) fn unavailable(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unavailable(UserMessage::new(problem).with_remedy(remedy))
    }

    /// No server answered.
    pub fn unreachable(fault: UserMessage, delivery: Delivery) -> Self {
        Self::Unreachable { fault, delivery, others_answer: false }
    }

    /// The one of several to report, of which there is at least one: one that the user can fix,
    /// one that shows more than that a server does not answer, or the first.
    pub(crate) fn worst(mut failures: Vec<Self>) -> Self {
        let is_fixable = |it: &Self| matches!(it, Self::Misconfigured { .. } | Self::NotHere(_));
        let fixable = failures.iter().position(is_fixable);
        let telling = || failures.iter().position(|it| !it.is_unreachable());
        let worst = fixable.or_else(telling).unwrap_or(0);
        failures.swap_remove(worst)
    }

    /// The same failure of a location that has served this run, if so: what the user set up was
    /// right then, so it is probably changing.
    pub(crate) fn once_served(self, has_served: bool) -> Self {
        match self {
            Self::Misconfigured { fault, executed: false } if has_served => {
                Self::Unavailable(fault)
            }
            failure => failure,
        }
    }

    /// The problem without its remedy, for a message with another ending.
    pub(crate) fn problem(&self) -> &str {
        self.fault().map_or("interrupted", UserMessage::problem)
    }

    /// The problem and its remedy.
    pub(crate) fn message(&self) -> UserMessage {
        self.fault().cloned().unwrap_or_else(|| UserMessage::new(self.problem()))
    }

    /// The same failure, of the renewal of a lease that lasts at least this long.
    pub(crate) fn of_lease(mut self, lasts: Option<Duration>) -> Self {
        if let Self::Unconfirmed { left, .. } = &mut self {
            *left = lasts;
        }
        self
    }

    /// The same failure in other words.
    pub(crate) fn reworded(mut self, reword: impl FnOnce(&str) -> String) -> Self {
        match &mut self {
            Self::Unreachable { fault, .. }
            | Self::Unavailable(fault)
            | Self::NotHere(fault)
            | Self::TooLarge(fault)
            | Self::Unconfirmed { fault, .. }
            | Self::Misconfigured { fault, .. } => *fault = fault.clone().reworded(reword),
            Self::Interrupted { .. } => {}
        }
        self
    }

    fn fault(&self) -> Option<&UserMessage> {
        match self {
            Self::Unreachable { fault, .. }
            | Self::Unavailable(fault)
            | Self::NotHere(fault)
            | Self::TooLarge(fault)
            | Self::Unconfirmed { fault, .. }
            | Self::Misconfigured { fault, .. } => Some(fault),
            Self::Interrupted { .. } => None,
        }
    }

    /// Whether the cause may pass without any action, so that it is worth trying again.
    pub(crate) fn is_transient(&self) -> bool {
        !matches!(self, Self::Misconfigured { .. } | Self::TooLarge(_) | Self::Interrupted { .. })
    }

    /// Whether no server has answered at all.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { others_answer: false, .. })
    }

    /// Whether the server was waited for in vain, so that it is not worth waiting for once more.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unreachable { delivery: Delivery::NotSent | Delivery::Pending, .. })
    }

    /// Whether the reply to a request that was sent has not arrived in time.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self, Self::Unreachable { delivery: Delivery::Pending, .. })
    }

    /// Whether the connection broke.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Unreachable { delivery: Delivery::Lost, .. })
    }

    /// The same failure, of one server among others. `answer`: one of them has answered, or the
    /// server itself did before.
    pub(crate) fn if_others(mut self, answer: bool) -> Self {
        if let Self::Unreachable { others_answer, .. } = &mut self {
            *others_answer |= answer;
        }
        self
    }

    /// The same failure of a server that others, which answer, still name as a master. If it does
    /// not answer, the message says so, with what to do about it.
    pub(crate) fn of_master(self, still_named: &str, remedy: &str) -> Self {
        match self {
            Self::Unreachable { fault, delivery, others_answer: false } => {
                let fault = fault.reworded(|why| format!("{why}, and {still_named}"));
                let fault = fault.with_remedy(remedy);
                Self::Unreachable { fault, delivery, others_answer: true }
            }
            failure => failure,
        }
    }

    /// The same failure, of a request that may have taken effect all the same: an earlier copy was
    /// lost, only its confirmation failed, or another server has queued it. `Delivery::Pending`
    /// rather than `Delivery::Lost`, because the request has been repeated already.
    pub fn but_maybe_executed(self) -> Self {
        let delivery = Delivery::Pending;
        match self {
            Self::Unreachable { fault, others_answer, .. } => {
                Self::Unreachable { fault, delivery, others_answer }
            }
            Self::Unavailable(fault) | Self::NotHere(fault) => {
                Self::Unreachable { fault, delivery, others_answer: true }
            }
            Self::Misconfigured { fault, .. } => Self::Misconfigured { fault, executed: true },
            Self::Interrupted { .. } => Self::Interrupted { sent: true },
            failure @ (Self::TooLarge(_) | Self::Unconfirmed { .. }) => failure,
        }
    }

    /// The same failure after it was waited for in vain.
    pub(crate) fn outlasted(self) -> Self {
        match self {
            Self::NotHere(fault) => Self::Unavailable(fault),
            failure => failure,
        }
    }

    /// Whether the request may have taken effect even though no reply arrived.
    pub(crate) fn maybe_executed(&self) -> bool {
        match self {
            Self::Unreachable { delivery, .. } => *delivery != Delivery::NotSent,
            Self::Interrupted { sent } => *sent,
            Self::Misconfigured { executed, .. } => *executed,
            Self::Unavailable(_) | Self::NotHere(_) => false,
            Self::TooLarge(_) => true,
            Self::Unconfirmed { .. } => true,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault() {
            Some(fault) => fault.fmt(f),
            None => f.write_str(self.problem()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sent_twice_may_have_taken_effect_whatever_the_second_error() {
        let fault = || UserMessage::new("refused");
        for failure in [
            Failure::unreachable(fault(), Delivery::NotSent),
            Failure::Unavailable(fault()),
            Failure::NotHere(fault()),
            Failure::misconfigured("refused", "correct it"),
            Failure::Interrupted { sent: false },
        ] {
            assert!(!failure.maybe_executed(), "{failure:?}");
            let is_transient = failure.is_transient();
            let failure = failure.but_maybe_executed();
            assert!(failure.maybe_executed(), "{failure:?}");
            assert_eq!(failure.is_transient(), is_transient, "{failure:?}");
        }
    }

    #[test]
    fn no_server_is_reachable_only_if_none_has_answered() {
        let away = || Failure::unreachable(UserMessage::new("refused"), Delivery::NotSent);
        assert!(away().if_others(false).is_unreachable());
        assert!(!away().if_others(true).is_unreachable());
        assert!(!away().if_others(true).if_others(false).is_unreachable());
    }
}
