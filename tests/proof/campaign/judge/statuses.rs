//! Exit statuses, and the causes of those that mean a loss or a refusal.

use super::{Promise, Verdict, meets, seconds};
use crate::campaign::faults::Effect;
use crate::campaign::kind::Kind;
use crate::campaign::record::{End, Record};
use crate::campaign::time::Span;

/// A cause without a fault.
const STARVED: &str = "a starved machine";

impl Record {
    /// Why this worker found no server to use, or lost its lock by one of the `other` effects.
    fn cause(&self, number: usize, other: impl Fn(&Effect) -> bool) -> Option<String> {
        let worker = &self.workers[number];
        let ttl = seconds(worker.work.ttl);
        // After the command has ended, rlock tries to release the lock. A lease ends a TTL after its
        // last renewal, and a command a third of a TTL after a loss.
        let until = worker.run.as_ref().map_or(worker.ended, |run| run.last);
        let during = (until - ttl * 4.0 / 3.0, worker.ended);
        let mut cause = self.failing(number, during);
        for fault in self.faults.iter().filter(|fault| fault.what.concerns(number)) {
            let is_cause = match fault.effect {
                Effect::Delays | Effect::Loses | Effect::FailsOver => meets(fault.span(), during),
                Effect::Stops(who) => who == number && meets(fault.span(), during),
                // A reply may be broken off much later.
                Effect::Breaks => other(&fault.effect) && fault.from <= during.1,
                _ => other(&fault.effect) && meets(fault.span(), during),
            };
            if is_cause {
                cause = Some(fault.what.name());
            }
        }
        // Requests time out after a quarter of the TTL.
        let is_starved = || self.strain.starved(during, &worker.stuck) > ttl / 10.0;
        cause.or_else(|| is_starved().then(|| STARVED.to_owned()))
    }

    /// The fault by which more than a minority of a quorum's servers fail for this worker, if any.
    pub(super) fn failing(&self, number: usize, during: Span) -> Option<String> {
        let kind = self.plan.kind;
        let blank = seconds(self.plan.blank());
        let mut failing = 0_u64;
        let mut faults = self.faults.iter().filter(|fault| {
            // A restarted server does not vote at once, and one out of reach is not tried at once.
            meets((fault.from, fault.to + blank), during)
        });
        let cause = faults.find(|fault| {
            failing |= match fault.effect {
                Effect::FailsOne(server) => 1 << server,
                Effect::Parts(wires) => wires[number],
                _ => 0,
            };
            failing.count_ones() as usize > kind.minority()
        });
        cause.map(|fault| fault.what.name())
    }
}

impl Verdict {
    pub(super) fn statuses(&mut self, record: &Record) {
        // The files of a lock are not deleted all at once.
        let may_be_damaged = |during: Span| {
            let during = (during.0 - 1.0, during.1);
            record.plan.kind == Kind::Files
                && record.suffers(during, |effect| *effect == Effect::Loses)
        };
        for fault in &record.faults {
            let fine = match fault.exit {
                None | Some(0 | 69 | 75) => true,
                Some(status) => status == 78 && may_be_damaged(fault.span()),
            };
            if !fine {
                let what = format!("{:?} ended with {:?}", fault.what, fault.exit);
                self.breaks(Promise::DocumentedStatus, what);
            }
        }
        for (number, worker) in record.workers.iter().enumerate() {
            let during = (worker.started, worker.ended);
            let own = |effect: &Effect| matches!(effect, Effect::Kills(who) | Effect::Terminates(who) if *who == number);
            let hit = record.suffers(during, own);
            let done = worker.run.as_ref().is_some_and(|run| run.done);
            let ran = worker.run.is_some();
            let is_loss = match worker.end {
                // The keeper stops a script that has lost its lock.
                End::Signal(9 | 15) => worker.work.is_script && !hit,
                end => end == End::Status(76) && !(worker.work.is_script && ran),
            };
            let ends_lease = |effect: &Effect| {
                matches!(effect, Effect::Revokes | Effect::Frees | Effect::Hurries)
            };
            // A server ends a blocking call by its time of day, so it answers a waiter later.
            let ends_request = |effect: &Effect| {
                *effect == Effect::Breaks || *effect == Effect::Prolongs && worker.queued.is_some()
            };
            let (status, cause) = match worker.end {
                _ if is_loss => (76, record.cause(number, ends_lease)),
                End::Status(69) => (69, record.cause(number, ends_request)),
                _ => (0, None),
            };
            self.causes.extend(cause.clone().map(|cause| (status, cause)));
            let fine = match worker.end {
                _ if is_loss => cause.is_some(),
                End::Status(0) => done,
                End::Status(69) => cause.is_some() && !ran,
                End::Status(75) => !ran && worker.work.limit.is_some(),
                // A grant may be freed before its reply arrives.
                End::Status(79) => {
                    !ran && record.suffers(during, |effect| *effect == Effect::Frees)
                }
                End::Signal(9 | 15) => hit,
                End::Status(78) => may_be_damaged(during),
                _ => false,
            };
            if !fine {
                let what =
                    format!("worker {number} ended with {:?}, told {:?}", worker.end, worker.told);
                self.breaks(Promise::DocumentedStatus, what);
            }
        }
    }
}
