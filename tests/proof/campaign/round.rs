//! Plays a plan and records what happens.

use std::fs;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::deployment::Deployment;
use super::faults::{Effect, Fault, What, Whom};
use super::judge;
use super::plan::{Plan, Style};
use super::record::{Happened, Record, Rest, Shown, Worker, runs};
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

struct Lasting {
    fault: usize,
    worker: Option<usize>,
    from: f64,
}

/// How a revocation ended, and when.
struct Revoked {
    exit: i32,
    at: f64,
    wall: u64,
}

struct Round<'a> {
    plan: &'a Plan,
    deployment: &'a mut Deployment,
    lock: String,
    directory: TempDir,
    workers: Vec<Option<Started>>,
    lasting: Vec<Lasting>,
    happened: Vec<Happened>,
    played: Vec<What>,
    machine: &'a Watcher,
    /// The revocations under way, with their place in `happened`.
    revoking: Vec<(usize, JoinHandle<Revoked>)>,
}

/// Plays one round. The deployment has no faults before the round or after it.
pub fn play(deployment: &mut Deployment, plan: &Plan, machine: &Watcher) -> Record {
    deployment.reset_clocks();
    deployment.heal();
    let (origin, epoch) = (now(), deployment.epoch());
    machine.watch_servers(deployment.processes());
    let mut round = Round {
        plan,
        deployment,
        lock: format!("campaign-{}", plan.seed),
        directory: tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap(),
        workers: plan.works.iter().map(|_| None).collect(),
        lasting: Vec::new(),
        happened: Vec::new(),
        played: Vec::new(),
        machine,
        revoking: Vec::new(),
    };
    if plan.min_replicas > 0 {
        // A replica that has just connected takes a second to confirm anything.
        let count = plan.min_replicas.to_string();
        let sure = ["exec", "--min-replicas", &count, "--ttl=4s", &round.lock, "true"];
        let url = round.deployment.direct_url();
        until("the replicas confirm", || run(rlock(sure).env("RLOCK_URL", &url)).code() == 0);
    }
    if plan.staged {
        round.stage();
    }
    let start = Instant::now();
    for (at, act) in round.timeline() {
        std::thread::sleep((start + at).saturating_duration_since(Instant::now()));
        round.act(act);
    }
    round.finish(origin, epoch)
}

impl Round<'_> {
    /// Starts the first worker and waits until it runs, then all others until they wait.
    fn stage(&mut self) {
        for number in 0..self.plan.works.len() {
            self.start(number);
            let runs_file = self.directory.path().join("runs");
            let give_up = Instant::now() + Duration::from_secs(5);
            while Instant::now() < give_up {
                let worker = self.workers[number].as_ref().unwrap();
                let runs = || runs(&read(&runs_file)).contains_key(&number);
                if worker.has_ended() || worker.queued().is_some() || runs() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    fn timeline(&self) -> Vec<(Duration, Act)> {
        let mut acts = Vec::new();
        for (number, work) in self.plan.works.iter().enumerate() {
            if !self.plan.staged {
                acts.push((work.start, Act::Start(number)));
            }
        }
        for (number, fault) in self.plan.faults.iter().enumerate() {
            acts.push((fault.at, Act::Begin(number)));
            acts.push((fault.at + fault.lasting, Act::End(number)));
        }
        acts.sort_by_key(|(at, _)| *at);
        acts
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Start(number) => self.start(number),
            Act::Begin(number) => self.begin(number),
            Act::End(number) => self.end(number),
        }
        // One may have started.
        self.machine.watch_servers(self.deployment.processes());
    }

    fn start(&mut self, number: usize) {
        let work = &self.plan.works[number];
        let url = self.deployment.url(number);
        let directory = self.directory.path();
        self.workers[number] = Some(Started::start(work, number, &self.lock, &url, directory));
    }

    fn begin(&mut self, number: usize) {
        let Fault { what, .. } = self.plan.faults[number];
        let worker = match what {
            What::Stop(whom) | What::Kill(whom) | What::Terminate(whom) => {
                let Some(worker) = self.found(whom) else { return };
                Some(worker)
            }
            _ => None,
        };
        let from = now();
        if !self.deployment.begin(what, &self.lock) {
            return;
        }
        if let Some(worker) = worker {
            let started = self.workers[worker].as_ref().unwrap();
            started.signal(match what {
                What::Stop(_) => Signal::SIGSTOP,
                What::Kill(_) => Signal::SIGKILL,
                _ => Signal::SIGTERM,
            });
        }
        match what {
            What::Revoke | What::Free => self.revoke(number, what == What::Free),
            _ if what.lasts() => self.lasting.push(Lasting { fault: number, worker, from }),
            _ => self.happened(number, worker, from),
        }
    }

    fn revoke(&mut self, number: usize, at_once: bool) {
        let mut release = rlock(["release", "--force"]);
        release.args(at_once.then_some("--now")).arg(&self.lock);
        release.env("RLOCK_URL", self.deployment.direct_url());
        let from = now();
        let revoking = std::thread::spawn(move || {
            let exit = run(&mut release).code();
            Revoked { exit, at: now(), wall: time_of_day() }
        });
        self.happened(number, None, from);
        self.revoking.push((self.happened.len() - 1, revoking));
    }

    fn end(&mut self, number: usize) {
        let Some(at) = self.lasting.iter().position(|lasting| lasting.fault == number) else {
            return;
        };
        let Lasting { worker, from, .. } = self.lasting.remove(at);
        self.deployment.end(self.plan.faults[number].what);
        self.happened(number, worker, from);
        let Some(worker) = worker else { return };
        let started = self.workers[worker].as_mut().unwrap();
        started.signal(Signal::SIGCONT);
        if self.plan.works[worker].style == Style::Exec {
            started.stops.push((from, now()));
        }
        // It ends all stops of this worker.
        let same = self.lasting.iter().find(|lasting| lasting.worker == Some(worker));
        if let Some(number) = same.map(|lasting| lasting.fault) {
            self.end(number);
        }
    }

    fn happened(&mut self, number: usize, worker: Option<usize>, from: f64) {
        let what = self.plan.faults[number].what;
        self.played.push(what);
        let effect = self.plan.effect(what, worker.unwrap_or(0));
        self.happened.push(Happened {
            what: format!("{what:?}"),
            name: what.name(),
            effect,
            concerned: (0..self.plan.works.len()).filter(|worker| what.concerns(*worker)).collect(),
            from,
            to: now() + if matches!(what, What::StepClock(..)) { self.prolonged() } else { 0.0 },
            wall: self.latest_time(),
            exit: None,
        });
    }

    /// The time of day, as no server has shown a later one.
    fn latest_time(&self) -> u64 {
        time_of_day() + self.deployment.hurried()
    }

    /// How much later a lease may end because clocks were set back, in seconds.
    fn prolonged(&self) -> f64 {
        let steps = self.played.iter().map(|what| match what {
            What::StepClock(_, millis) => (-millis).max(0) as f64 / 1e3,
            _ => 0.0,
        });
        steps.sum()
    }

    /// The worker that a fault hits, if it is alive.
    fn found(&self, whom: Whom) -> Option<usize> {
        let worker = match whom {
            Whom::Worker(worker) => worker,
            Whom::Holder => {
                let text = read(&self.directory.path().join("runs"));
                let line = text.lines().next_back()?;
                line.split(' ').next()?.parse().ok()?
            }
        };
        let started = self.workers.get(worker)?.as_ref()?;
        (!started.has_ended()).then_some(worker)
    }

    fn finish(mut self, origin: f64, epoch: u64) -> Record {
        let ended: Vec<_> = self
            .workers
            .drain(..)
            .map(|worker| {
                let worker = worker.unwrap();
                let (started, stops, queued) =
                    (worker.started, worker.stops.clone(), worker.queued());
                (started, stops, queued, worker.end())
            })
            .collect();
        for (at, revoking) in self.revoking.drain(..) {
            let Revoked { exit, at: ended, wall } = revoking.join().unwrap();
            let happened = &mut self.happened[at];
            happened.exit = Some(exit);
            // If it failed, its request may still be under way.
            (happened.to, happened.wall) =
                if exit == 0 { (ended, wall) } else { (now(), time_of_day()) };
            happened.wall += self.deployment.hurried();
        }
        self.deployment.heal();
        let failed_over = self.plan.kind.replicas() > 0 && self.deployment.epoch() != epoch;
        if failed_over {
            self.note_failover(origin);
        }
        let mut runs = runs(&read(&self.directory.path().join("runs")));
        let workers = ended.into_iter().enumerate().map(|(number, ended)| {
            let (started, stops, queued, (ended, end, told, stuck)) = ended;
            let work = self.plan.works[number].clone();
            Worker {
                work,
                started,
                queued,
                run: runs.remove(&number),
                ended,
                end,
                stops,
                stuck,
                told,
            }
        });
        let workers: Vec<Worker> = workers.collect();
        let counter = |name: &str| {
            let text = read(&self.directory.path().join(name));
            text.split(' ').next().and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        let rest = self.rest();
        Record {
            plan: self.plan.clone(),
            wall: time_of_day() as f64 - now() * 1e6,
            workers,
            faults: self.happened.clone(),
            hurried: self.deployment.hurried() as f64 / 1e6,
            counters: (counter("plain"), counter("fenced")),
            failed_over,
            shown: if rest == Rest::Free { self.shown() } else { Vec::new() },
            rest,
            strain: self.machine.since(origin),
        }
    }

    /// A replaced master may act as one until all servers have settled.
    fn note_failover(&mut self, origin: f64) {
        let (to, wall) = (now(), time_of_day());
        let (kind, mut is_planned) = (self.plan.kind, false);
        for (fault, what) in self.happened.iter_mut().zip(&self.played) {
            is_planned |= what.may_replace_master(kind) || what.is_orderly();
            // The replacement may follow later.
            if what.may_replace_master(kind) {
                (fault.to, fault.wall) = (to, wall);
            }
        }
        if is_planned {
            return;
        }
        // Nobody asked for it: a starved machine looks like a dead master.
        let effect = match self.plan.survives_failovers() {
            true => Effect::Delays,
            false => Effect::FailsOver,
        };
        let (what, name) = ("unplanned failover".into(), "unplanned failover");
        let from = origin;
        let concerned = (0..self.plan.works.len()).collect();
        self.happened.push(Happened { what, name, effect, concerned, from, to, wall, exit: None });
    }

    /// What `inspect` shows of the lock, with one hold more, for each order of the URLs.
    fn shown(&self) -> Vec<Vec<Shown>> {
        let at = |arguments: &[&str], url: &str| run(rlock(arguments).env("RLOCK_URL", url)).out();
        let orders = self.deployment.orders();
        let Some(url) = orders.first() else { return Vec::new() };
        let token = at(&["acquire", &self.lock], url);
        let look = |url: &String| holds(&at(&["inspect", "--json", &self.lock], url));
        let shown = orders.iter().map(look).collect();
        at(&["release", &self.lock, token.trim()], url);
        shown
    }

    /// Waits until all leases must have expired, and looks at the lock.
    fn rest(&self) -> Rest {
        let ttl = self.plan.works.iter().map(|work| work.ttl).max().unwrap();
        let at = |arguments: &[&str]| {
            let mut command = rlock(arguments);
            run(command.env("RLOCK_URL", self.deployment.direct_url()))
        };
        let give_up = Instant::now()
            + judge::longest_idle(self.plan, self.plan.works.len())
            + Duration::from_secs_f64(self.prolonged());
        loop {
            let inspected = at(&["inspect", &self.lock]);
            let ttl = format!("{}ms", ttl.as_millis());
            let taken = at(&["exec", "-n", "--ttl", &ttl, &self.lock, "true"]);
            match (inspected.code(), taken.code()) {
                // It may have become free in between.
                (_, 0) => return Rest::Free,
                // A lock that looks free is granted to waiters first, though they are dead.
                _ if Instant::now() < give_up => std::thread::sleep(Duration::from_millis(50)),
                _ => return Rest::Held(format!("{inspected:?}\n{taken:?}")),
            }
        }
    }
}

/// The holds of a lock, by the output of `inspect --json`.
fn holds(json: &str) -> Vec<Shown> {
    let locks: Value = serde_json::from_str(json).unwrap();
    let time = |at: &Value| {
        let at = at.as_str().map(|at| humantime::parse_rfc3339(at).unwrap());
        at.map_or(0.0, |at| at.duration_since(UNIX_EPOCH).unwrap().as_secs_f64())
    };
    let text = |it: &Value| it.as_str().map(str::to_owned);
    let lists = [&locks[0]["holders"], &locks[0]["history"]].into_iter();
    let holds = lists.flat_map(|list| list.as_array().unwrap()).map(|hold| Shown {
        id: text(&hold["id"]).unwrap(),
        ended: text(&hold["ended"]),
        ended_at: time(&hold["ended_at"]),
        acquired_at: time(&hold["acquired_at"]),
    });
    holds.collect()
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}
