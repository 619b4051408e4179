//! Plays a plan and records what happens.

use std::collections::BTreeMap;
use std::fs;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::deployment::Deployment;
use super::faults::{Effect, Fault, Hit, What, Whom};
use super::judge;
use super::plan::Plan;
use super::record::{Happened, Record, Worker, runs};
use super::strain::Watcher;
use super::time::{now, time_of_day};
use super::worker::Started;
use crate::support::{Finished, rlock, run, until};

/// A step of the round.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    Start(usize),
    Begin(usize),
    End(usize),
}

struct Round<'a> {
    plan: &'a Plan,
    deployment: &'a mut Deployment,
    lock: String,
    directory: TempDir,
    workers: Vec<Option<Started>>,
    /// When each fault that lasts began, and the worker that it hit.
    lasting: BTreeMap<usize, (f64, Option<usize>)>,
    happened: Vec<Happened>,
    machine: Watcher,
    /// The revocations under way.
    revoking: Vec<JoinHandle<Happened>>,
}

/// Plays one round.
pub fn play(deployment: &mut Deployment, plan: &Plan) -> Record {
    deployment.reset_clocks();
    deployment.heal();
    let (origin, epoch) = (now(), deployment.epoch());
    let mut round = Round {
        plan,
        deployment,
        lock: format!("campaign-{}", plan.seed),
        directory: tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap(),
        workers: plan.works.iter().map(|_| None).collect(),
        lasting: BTreeMap::new(),
        happened: Vec::new(),
        machine: Watcher::start(),
        revoking: Vec::new(),
    };
    round.machine.watch_servers(round.deployment.processes());
    round.await_confirmations();
    let start = Instant::now();
    for (at, act) in round.timeline() {
        std::thread::sleep((start + at).saturating_duration_since(Instant::now()));
        match act {
            Act::Start(number) => round.start(number),
            Act::Begin(number) => round.begin(number),
            Act::End(number) => round.end(number),
        }
        // One may have started.
        round.machine.watch_servers(round.deployment.processes());
    }
    round.finish(origin, epoch)
}

impl Round<'_> {
    fn timeline(&self) -> Vec<(Duration, Act)> {
        let mut acts = Vec::new();
        for (number, work) in self.plan.works.iter().enumerate() {
            acts.push((work.start, Act::Start(number)));
        }
        for (number, fault) in self.plan.faults.iter().enumerate() {
            acts.push((fault.at, Act::Begin(number)));
            acts.push((fault.at + fault.lasting, Act::End(number)));
        }
        acts.sort_by_key(|(at, _)| *at);
        acts
    }

    /// A replica that has just connected takes a second to confirm anything.
    fn await_confirmations(&self) {
        if self.plan.min_replicas > 0 {
            let count = self.plan.min_replicas.to_string();
            let sure = ["exec", "--min-replicas", &count, "--ttl=4s", "sure", "true"];
            let url = self.deployment.direct_url();
            until("the replicas confirm", || run(rlock(sure).env("RLOCK_URL", &url)).code() == 0);
        }
    }

    fn start(&mut self, number: usize) {
        let url = self.deployment.url(self.plan.seed, number);
        let worker = Started::start(self.plan, number, &self.lock, &url, self.directory.path());
        self.workers[number] = Some(worker);
    }

    fn begin(&mut self, number: usize) {
        let Fault { what, .. } = self.plan.faults[number];
        let hit = match what {
            What::Stop(whom) | What::Suspend(whom) => Some((whom, Signal::SIGSTOP)),
            What::Kill(whom) => Some((whom, Signal::SIGKILL)),
            What::Terminate(whom) => Some((whom, Signal::SIGTERM)),
            _ => None,
        };
        let from = now();
        let mut worker = None;
        if let Some((whom, signal)) = hit {
            let Some(found) = self.found(whom) else { return };
            let is_stopped = self.lasting.values().any(|(_, worker)| *worker == Some(found));
            if is_stopped && signal == Signal::SIGSTOP {
                return;
            }
            let hit = self.workers[found].as_ref().unwrap();
            match what {
                What::Suspend(_) => hit.signal_all(signal),
                _ => hit.signal(signal),
            }
            worker = Some(found);
        } else if !self.deployment.begin(what, &self.lock) {
            return;
        }
        match what {
            What::Revoke | What::Free => self.revoke(what),
            _ if what.lasts() => drop(self.lasting.insert(number, (from, worker))),
            _ => self.happened(what, worker, from),
        }
    }

    fn revoke(&mut self, what: What) {
        let mut release = rlock(["release", "--force"]);
        release.args((what == What::Free).then_some("--now")).arg(&self.lock);
        release.env("RLOCK_URL", self.deployment.direct_url());
        let (from, effect) = (now(), self.plan.effect(what, 0));
        self.revoking.push(std::thread::spawn(move || {
            let exit = Some(run(&mut release).code());
            Happened { what, effect, from, to: now(), wall: time_of_day(), exit }
        }));
    }

    fn end(&mut self, number: usize) {
        let Some((from, worker)) = self.lasting.remove(&number) else { return };
        let what = self.plan.faults[number].what;
        self.deployment.end(what);
        self.happened(what, worker, from);
        let Some(worker) = worker else { return };
        let started = self.workers[worker].as_mut().unwrap();
        let is_suspended = matches!(what, What::Suspend(_));
        match is_suspended {
            true => started.signal_all(Signal::SIGCONT),
            false => started.signal(Signal::SIGCONT),
        }
        // A keeper goes on while only its script is stopped.
        if is_suspended || !self.plan.works[worker].is_script {
            started.stops.push((from, now()));
        }
    }

    fn happened(&mut self, what: What, worker: Option<usize>, from: f64) {
        let effect = self.plan.effect(what, worker.unwrap_or(0));
        let is_step = matches!(what, What::OnServer(_, Hit::StepClock(..0)));
        let mut to = now() + if is_step { self.deployment.prolonged() as f64 / 1e3 } else { 0.0 };
        if let Effect::Moves { whole, .. } = effect {
            self.await_confirmations();
            // The new master serves at once, unless it needs a replica.
            to = if whole && self.plan.min_replicas == 0 { self.deployment.moved } else { now() };
        }
        let wall = time_of_day() + self.deployment.hurried() * 1_000;
        self.happened.push(Happened { what, effect, from, to, wall, exit: None });
    }

    /// The worker that a fault hits, if it is alive.
    fn found(&self, whom: Whom) -> Option<usize> {
        let worker = match whom {
            Whom::Worker(worker) => worker,
            Whom::Holder => {
                let text = self.read("runs");
                text.lines().next_back()?.split(' ').next()?.parse().ok()?
            }
        };
        let started = self.workers.get(worker)?.as_ref()?;
        (!started.has_ended()).then_some(worker)
    }

    fn finish(mut self, origin: f64, epoch: u64) -> Record {
        let started = self.workers.drain(..).zip(&self.plan.works);
        let mut workers: Vec<Worker> =
            started.map(|(started, work)| started.unwrap().end(work)).collect();
        for revoking in self.revoking.drain(..) {
            let mut revoked = revoking.join().unwrap();
            if revoked.exit != Some(0) {
                // Its request may still be under way.
                (revoked.to, revoked.wall) = (now(), time_of_day());
            }
            revoked.wall += self.deployment.hurried() * 1_000;
            self.happened.push(revoked);
        }
        self.deployment.heal();
        if self.deployment.epoch() != epoch {
            self.note_failover(origin);
        }
        let mut runs = runs(&self.read("runs"));
        for (number, worker) in workers.iter_mut().enumerate() {
            worker.run = runs.remove(&number);
        }
        let counter = self.read("counter");
        Record {
            plan: self.plan.clone(),
            workers,
            counter: counter.split(' ').next().unwrap_or_default().parse().unwrap_or(0),
            held: self.held(),
            faults: self.happened,
            hurried: self.deployment.hurried() as f64 / 1e3,
            strain: self.machine.end(),
        }
    }

    /// A replaced master may act as one until all servers have settled.
    fn note_failover(&mut self, origin: f64) {
        let (to, wall) = (now(), time_of_day());
        let mut is_planned = false;
        for fault in &mut self.happened {
            is_planned |= matches!(fault.what, What::OnServer(_, Hit::FailOver));
            // The replacement may follow later.
            if fault.what.may_replace_master(self.plan.kind) {
                is_planned = true;
                (fault.to, fault.wall) = (to, wall);
            }
        }
        if !is_planned {
            // A master on a starved machine looks like a frozen one.
            self.happened(What::OnServer(0, Hit::Freeze), None, origin);
        }
    }

    /// Waits until all leases must have expired, and returns what a command that expects a free lock
    /// prints if it is not.
    fn held(&self) -> Option<String> {
        let ttl = self.plan.works.iter().map(|work| work.ttl).max().unwrap();
        let (ttl, url) = (format!("{}ms", ttl.as_millis()), self.deployment.direct_url());
        let exec = ["exec", "-n", "--ttl", &ttl, &self.lock, "true"];
        let give_up = Instant::now()
            + judge::longest_idle(self.plan, self.plan.works.len())
            + Duration::from_millis(self.deployment.prolonged());
        loop {
            let taken = run(rlock(exec).env("RLOCK_URL", &url));
            // A lock that looks free is granted to waiters first, though they are dead.
            match taken.code() {
                0 => return None,
                _ if Instant::now() < give_up => std::thread::sleep(Duration::from_millis(50)),
                _ => return Some(format!("{taken:?}")),
            }
        }
    }

    /// What is in this file of the workers.
    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.directory.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
