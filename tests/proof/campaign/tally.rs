//! The counts of a campaign.

use std::collections::BTreeMap;
use std::fmt;

use super::judge::{Gap, Promise, Verdict};
use super::record::{End, Record};

/// Of the names of the counts.
pub const WIDTH: usize = 42;

#[derive(Default)]
pub struct Tally {
    rounds: usize,
    grants: usize,
    ends: BTreeMap<End, usize>,
    faults: BTreeMap<&'static str, usize>,
    failovers: usize,
    reminded: usize,
    documented: BTreeMap<Gap, Lengths>,
    starved: Lengths,
    causes: BTreeMap<(i32, &'static str), usize>,
    updates: usize,
    lost_updates: usize,
    fenced_updates: usize,
    rejected: usize,
    fences_compared: usize,
    orders_compared: usize,
    views_compared: usize,
    longest_idle: f64,
    violations: BTreeMap<Promise, usize>,
    complaints: String,
}

/// A number of times, and the longest.
#[derive(Default)]
struct Lengths {
    count: usize,
    longest: f64,
}

impl Lengths {
    fn add(&mut self, lengths: &[f64]) {
        self.count += lengths.len();
        self.longest = lengths.iter().copied().fold(self.longest, f64::max);
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            0 => f.write_str("0"),
            count => write!(f, "{count}, the longest of {:.3} s", self.longest),
        }
    }
}

impl Tally {
    pub fn add(&mut self, record: &Record, verdict: &Verdict) {
        self.rounds += 1;
        self.failovers += usize::from(record.failed_over);
        for worker in &record.workers {
            self.grants += usize::from(worker.run.is_some());
            *self.ends.entry(worker.end).or_default() += 1;
        }
        for fault in &record.faults {
            *self.faults.entry(fault.name).or_default() += 1;
        }
        self.reminded += verdict.reminded;
        for (gap, length) in &verdict.documented {
            self.documented.entry(*gap).or_default().add(&[*length]);
        }
        for cause in &verdict.causes {
            *self.causes.entry(*cause).or_default() += 1;
        }
        self.starved.add(&verdict.starved);
        self.updates += verdict.updates;
        self.lost_updates += verdict.lost_updates;
        self.fenced_updates += verdict.fenced_updates;
        self.rejected += verdict.rejected;
        self.fences_compared += verdict.fences_compared;
        self.orders_compared += verdict.orders_compared;
        self.views_compared += verdict.views_compared;
        self.longest_idle = self.longest_idle.max(verdict.longest_idle);
        self.complaints += &verdict.complaints(record.plan.seed);
        for violation in &verdict.violations {
            *self.violations.entry(violation.promise).or_default() += 1;
        }
    }

    fn violations(&self, promise: Promise) -> usize {
        self.violations.get(&promise).copied().unwrap_or(0)
    }

    /// What was broken, and in which rounds.
    pub fn complaints(&self) -> String {
        self.complaints.clone()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: String| writeln!(f, "{name:<WIDTH$}{value}");
        line("rounds", self.rounds.to_string())?;
        line("commands that ran", self.grants.to_string())?;
        for (end, count) in &self.ends {
            let how = match end {
                End::Status(status) => format!("ended with status {status}"),
                End::Signal(signal) => format!("ended by signal {signal}"),
                End::Never => "did not end".into(),
            };
            line(&how, count.to_string())?;
        }
        for (fault, count) in &self.faults {
            line(&format!("fault: {fault}"), count.to_string())?;
        }
        line("failovers", self.failovers.to_string())?;
        line("losses that all waiters made good", self.reminded.to_string())?;
        for (gap, name) in [
            (Gap::Paused, "overlaps while rlock paused"),
            (Gap::LostData, "overlaps after a loss of data"),
            (Gap::FailedOver, "overlaps after a failover"),
            (Gap::Freed, "overlaps after --force --now"),
            (Gap::Hurried, "overlaps after a clock was set forward"),
        ] {
            let lengths = self.documented.get(&gap);
            line(name, lengths.map_or_else(|| "0".into(), Lengths::to_string))?;
        }
        line("overlaps on a starved machine", self.starved.to_string())?;
        line("other overlaps", self.violations(Promise::NoOverlap).to_string())?;
        line("wrong slot numbers", self.violations(Promise::OwnSlot).to_string())?;
        let lost = self.violations(Promise::NoLostUpdate);
        line(
            "updates of the plain counter",
            format!("{}, {} lost in gaps, {lost} lost otherwise", self.updates, self.lost_updates),
        )?;
        let lost = self.violations(Promise::NoLostFencedUpdate);
        line(
            "updates of the fenced counter",
            format!("{}, {} rejected, {lost} lost", self.fenced_updates, self.rejected),
        )?;
        let wrong = self.violations(Promise::FencesGrow);
        line("fencing tokens compared", format!("{}, {wrong} did not grow", self.fences_compared))?;
        let wrong = self.violations(Promise::FirstComeFirstServed);
        line("waiters compared", format!("{}, {wrong} were overtaken", self.orders_compared))?;
        let wrong = self.violations(Promise::OneView);
        line(
            "holds inspected by several orders",
            format!("{}, {wrong} differ", self.views_compared),
        )?;
        line("locks without a holder", self.violations(Promise::NoLockWithoutHolder).to_string())?;
        let wrong = self.violations(Promise::NoIdleLock);
        line(
            "longest time of an idle lock",
            format!("{:.3} s, {wrong} beyond the bound", self.longest_idle),
        )?;
        for ((status, cause), count) in &self.causes {
            line(&format!("{status} caused by {cause}"), count.to_string())?;
        }
        line("undocumented exit statuses", self.violations(Promise::DocumentedStatus).to_string())
    }
}
