//! Exit statuses, and the causes of those that mean a loss or a refusal.

use super::{Promise, Verdict, meets, seconds};
use crate::campaign::faults::Effect;
use crate::campaign::record::{End, Happened, Record};
use crate::campaign::time::Span;

impl Record {
    /// Whether this worker had a reason to find no server to use, or to lose its lock: one that is
    /// the same for both, or one of the `other` effects.
    fn has_cause(&self, number: usize, other: impl Fn(&Happened) -> bool) -> bool {
        let worker = &self.workers[number];
        let ttl = seconds(worker.work.ttl);
        // After the command has ended, rlock tries to release the lock. A lease ends a TTL after its
        // last renewal, and a command a third of a TTL after a loss.
        let until = worker.run.as_ref().map_or(worker.ended, |run| run.last);
        let during = (until - ttl * 4.0 / 3.0, worker.ended);
        let mut concerning = self.faults.iter().filter(|fault| fault.what.concerns(number));
        self.is_failing(number, during)
            // Requests time out after a quarter of the TTL.
            || self.strain.starved(during, &worker.stuck) > ttl / 10.0
            || concerning.any(|fault| match fault.effect {
                Effect::Delays | Effect::Loses | Effect::FailsOver => meets(fault.span(), during),
                Effect::Stops(who) => who == number && meets(fault.span(), during),
                // A reply may be broken off much later.
                Effect::Breaks => other(fault) && fault.from <= during.1,
                _ => other(fault) && meets(fault.span(), during),
            })
    }

    /// Whether more than a minority of a quorum's servers fail for this worker.
    pub(super) fn is_failing(&self, number: usize, during: Span) -> bool {
        let kind = self.plan.kind;
        let blank = seconds(self.plan.blank());
        let faults = self.faults.iter().filter(|fault| {
            // A restarted server does not vote at once, and one out of reach is not tried at once.
            meets((fault.from, fault.to + blank), during)
        });
        let failing = faults.fold(0_u64, |failing, fault| match fault.effect {
            Effect::FailsOne(server) => failing | 1 << server,
            Effect::Parts(wires) => failing | wires[number],
            _ => failing,
        });
        failing.count_ones() as usize > kind.minority()
    }
}

impl Verdict {
    pub(super) fn statuses(&mut self, record: &Record) {
        for fault in &record.faults {
            if !matches!(fault.exit, None | Some(0 | 69 | 75)) {
                let what = format!("{:?} ended with {:?}", fault.what, fault.exit);
                self.breaks(Promise::DocumentedStatus, what);
            }
        }
        for (number, worker) in record.workers.iter().enumerate() {
            let during = (worker.started, worker.ended);
            let hit = record.was_hit(number, during);
            let done = worker.run.as_ref().is_some_and(|run| run.done);
            let ran = worker.run.is_some();
            let is_loss = match worker.end {
                // The keeper stops a script that has lost its lock.
                End::Signal(9 | 15) => worker.work.is_script && !hit,
                end => end == End::Status(76) && !(worker.work.is_script && ran),
            };
            let ends_lease = |fault: &Happened| {
                matches!(fault.effect, Effect::Revokes | Effect::Frees | Effect::Hurries)
                    || fault.loses_hold(worker)
            };
            // A queued waiter has been answered before, so an outage does not end it.
            let is_new = worker.queued.is_none();
            // A server ends a blocking call by its time of day, so it answers a waiter later.
            let ends_request = |fault: &Happened| {
                fault.effect == Effect::Breaks
                    || fault.effect == Effect::Prolongs && !is_new
                    || fault.is_move() && (is_new || worker.work.limit.is_some())
            };
            let fine = match worker.end {
                _ if is_loss => record.has_cause(number, ends_lease),
                End::Status(0) => done,
                End::Status(69) => !ran && record.has_cause(number, ends_request),
                End::Status(75) => !ran && worker.work.limit.is_some(),
                End::Status(78) => {
                    let mut faults = record.faults.iter();
                    !ran && is_new && faults.any(|it| it.is_move() && meets(it.span(), during))
                }
                // A grant may be freed before its reply arrives.
                End::Status(79) => {
                    !ran && record.suffers(during, |effect| *effect == Effect::Frees)
                }
                End::Signal(9 | 15) => hit,
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
