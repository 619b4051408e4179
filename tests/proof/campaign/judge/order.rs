//! The order of grants: fencing tokens, and first come, first served.

use super::{CLAIM_WINDOW, Promise, Verdict, join, meets, seconds};
use crate::campaign::faults::Effect;
use crate::campaign::plan::Mode;
use crate::campaign::record::{Happened, Record, Worker};
use crate::campaign::time::Span;

/// How far apart a quorum may grant requests that it admits together, in microseconds.
const JITTER: u64 = 250_000;

impl Happened {
    /// Whether the server cannot hear waiters, or forgets them.
    fn disturbs_queue(&self, record: &Record) -> bool {
        match self.effect {
            Effect::Delays | Effect::Loses | Effect::FailsOver => true,
            Effect::Moves { whole, .. } => {
                !whole || self.to - self.from > seconds(CLAIM_WINDOW) / 2.0
            }
            Effect::Hurries => record.hurried >= seconds(CLAIM_WINDOW),
            _ => false,
        }
    }
}

impl Record {
    /// Whether the fault may have revoked a grant before its waiter has claimed it. That waiter then
    /// goes to the end of the queue. While a command runs that excludes all others, there is none.
    fn hits_a_grant(&self, fault: &Happened) -> bool {
        let excludes = |worker: &&Worker| match worker.work.mode {
            Mode::Exclusive | Mode::Reentrant(_) => true,
            Mode::Shared | Mode::Slots(_) => false,
        };
        let mut runs = self.workers.iter().filter(excludes).filter_map(|it| it.run.as_ref());
        matches!(fault.effect, Effect::Revokes | Effect::Frees)
            && !runs.any(|run| run.first <= fault.from && fault.to <= run.last)
    }

    /// Whether this worker was cut off from servers, so that too few were left for it.
    fn was_alone(&self, number: usize, during: Span) -> bool {
        let parts = |it: &Effect| matches!(it, Effect::Parts(wires) if wires[number] != 0);
        self.suffers(during, parts) && self.is_failing(number, during)
    }
}

impl Verdict {
    pub(super) fn fences(&mut self, record: &Record) {
        for (number, worker) in record.workers.iter().enumerate() {
            for (later, other) in record.workers.iter().enumerate() {
                let (Some(run), Some(next)) = (&worker.run, &other.run) else { continue };
                if number == later {
                    continue;
                }
                if run.fence == next.fence {
                    let what = format!("workers {number} and {later} have the same fencing token");
                    self.breaks(Promise::FencesGrow, what);
                }
                if run.last >= next.first || join(worker.work.mode, other.work.mode) {
                    continue;
                }
                // The later one was granted the lock first if it paused or its hold was lost.
                let overtaken = record.faults.iter().any(|fault| {
                    fault.may_free() && fault.is_after(next) && fault.from < next.first
                });
                if overtaken || other.was_stopped((other.started, next.first)) {
                    continue;
                }
                if run.fence > next.fence {
                    let what = format!(
                        "worker {later} ran after worker {number} with a smaller fencing token"
                    );
                    self.breaks(Promise::FencesGrow, what);
                }
            }
        }
    }

    pub(super) fn order(&mut self, record: &Record) {
        for (number, worker) in record.workers.iter().enumerate() {
            let Some(queued) = worker.queued else { continue };
            let end = worker.run.as_ref().map_or(worker.ended, |run| run.first);
            let waiting = (worker.started, end);
            if worker.was_stopped(waiting)
                || record.was_alone(number, waiting)
                || record.strain.longest_gap(waiting) + worker.stuck(waiting)
                    > seconds(worker.work.ttl) / 3.0
                || record.was_hit(number, waiting)
                || record.faults.iter().any(|fault| {
                    meets(fault.span(), waiting)
                        && (fault.disturbs_queue(record) || record.hits_a_grant(fault))
                })
            {
                continue;
            }
            for (later, other) in record.workers.iter().enumerate() {
                let Some(next) = &other.run else { continue };
                // It may enter the hold of its owner at once.
                if other.started <= queued || matches!(other.work.mode, Mode::Reentrant(_)) {
                    continue;
                }
                // Requests that a quorum admits together take the lock at the same time.
                let jitter = JITTER + (record.hurried * 1e6) as u64;
                let together = record.plan.kind.is_quorum()
                    && join(worker.work.mode, other.work.mode)
                    && worker.run.as_ref().is_some_and(|run| run.fence < next.fence + jitter);
                if together {
                    continue;
                }
                let overtakes = match (&worker.run, worker.work.limit) {
                    (Some(run), _) => next.fence < run.fence,
                    // It leaves the queue at its limit, and ends a little later.
                    (None, Some(limit)) => {
                        next.first < worker.ended.min(worker.started + seconds(limit))
                    }
                    (None, _) => false,
                };
                if overtakes {
                    let what = format!("worker {later} overtook worker {number}");
                    self.breaks(Promise::FirstComeFirstServed, what);
                }
            }
        }
    }
}
