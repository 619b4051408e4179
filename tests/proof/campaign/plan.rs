//! What a round does, all of it from its seed.

use std::time::Duration;

use super::faults::{Effect, Fault, WORKERS, What, Whom};
use super::kind::Kind;
use crate::support::random::Random;

/// The time between two requests of a stream: shorter than a dead waiter's turn lasts.
const STREAM: Duration = Duration::from_millis(900);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Exclusive,
    Shared,
    Slots(usize),
    /// Exclusive, and open to commands of the same owner.
    Reentrant(u64),
}

/// How a worker holds its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Exec,
    /// A script with `acquire --while-pid`.
    WhilePid,
}

/// How long a worker waits for its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    Forever,
    For(Duration),
    None,
}

/// The clocks of a client, which may be others than those of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    OfHost,
    /// Its time of day is hours ahead.
    Wall,
    /// Its clock since boot is a day ahead, as in a container.
    Boot,
}

#[derive(Clone, Debug)]
pub struct Work {
    pub clocks: Clocks,
    pub mode: Mode,
    pub style: Style,
    pub limit: WaitLimit,
    pub ttl: Duration,
    pub at_least: Option<Duration>,
    /// How long the command runs.
    pub lasting: Duration,
    /// Whether the command ignores SIGTERM.
    pub stubborn: bool,
    /// How many replicas each grant and renewal waits for.
    pub min_replicas: u64,
    /// `--next`
    pub next: bool,
    /// When it starts, from the start of the round. Ignored if the round is staged.
    pub start: Duration,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub seed: u64,
    /// The first worker runs and all others wait before the first fault.
    pub staged: bool,
    /// How many replicas each grant and renewal waits for.
    pub min_replicas: u64,
    pub works: Vec<Work>,
    pub faults: Vec<Fault>,
}

fn millis(random: &mut Random, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + random.below(to - from))
}

/// A step of a clock, in milliseconds.
fn step(random: &mut Random) -> i64 {
    let millis = 100 + random.below(4_900).cast_signed();
    if random.below(2) == 0 { millis } else { -millis }
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

impl Plan {
    /// What the fault may cause by docs/promises.md. `worker` is the one that it hits.
    pub fn effect(&self, what: What, worker: usize) -> Effect {
        match what {
            What::Stop(_) => Effect::Stops(worker),
            What::Kill(_) => Effect::Kills(worker),
            What::Terminate(_) => Effect::Terminates(worker),
            What::Revoke | What::DeleteKey => Effect::Revokes,
            What::Free => Effect::Frees,
            What::KillConnections | What::BreakReply(..) => Effect::Breaks,
            What::Flush => Effect::Loses,
            What::StepClock(server, _) if self.kind.is_quorum() => Effect::FailsOne(server),
            What::StepClock(_, millis) if millis > 0 => Effect::Hurries,
            What::StepClock(..) => Effect::Prolongs,
            What::FreezeServer(server)
            | What::KillServer(server)
            | What::RefuseServer(server)
            | What::DeleteKeyOf(server) => Effect::FailsOne(server),
            What::Part(wires) if self.kind.is_quorum() => Effect::Parts(wires),
            What::RestartEmpty(server) if self.kind.is_quorum() => Effect::FailsOne(server),
            What::RestartEmpty(_) => Effect::Loses,
            _ if what.may_replace_master(self.kind) && !self.survives_failovers() => {
                Effect::FailsOver
            }
            _ => Effect::Delays,
        }
    }

    /// How long a restarted server of a quorum does not vote: the longest TTL or `--at-least` of a
    /// worker, plus 2 s, because uptimes are whole seconds. Zero without a quorum.
    pub fn blank(&self) -> Duration {
        if !self.kind.is_quorum() {
            return Duration::ZERO;
        }
        let longest = |work: &Work| work.ttl.max(work.at_least.unwrap_or_default());
        self.works.iter().map(longest).max().unwrap_or_default() + Duration::from_secs(2)
    }

    /// Whether locks survive a failover to any replica.
    pub fn survives_failovers(&self) -> bool {
        self.min_replicas == self.kind.replicas()
    }

    pub fn new(kind: Kind, seed: u64) -> Self {
        let random = &mut Random(seed);
        let staged = random.below(3) == 0;
        let min_replicas = match random.below(2) {
            0 => kind.replicas(),
            _ => random.below(kind.replicas() + 1),
        };
        let longest = if kind.replicas() > 0 { 5_000 } else { 3_000 };
        // All clients of a lock on a quorum use the same TTL.
        let common = kind.is_quorum().then(|| pick(random, &[1_000, 3_000]));
        let common = common.map(Duration::from_millis);
        let modes = Self::modes(random, staged);
        let works = (0..2 + random.below(WORKERS as u64 - 1)).map(|number| {
            let ttl = common.unwrap_or_else(|| millis(random, 1_000, longest));
            let first = number == 0;
            let limit = match random.below(8) {
                _ if staged || first => WaitLimit::Forever,
                0 => WaitLimit::None,
                1 | 2 => WaitLimit::For(millis(random, 500, 4_000)),
                _ => WaitLimit::Forever,
            };
            // The first one runs beyond its lease, so that a fault can make it lose the lock.
            let lasting = match first {
                true => ttl + millis(random, 300, 2_000),
                false => millis(random, 30, 1_500),
            };
            Work {
                clocks: match random.below(8) {
                    0 => Clocks::Wall,
                    1 => Clocks::Boot,
                    _ => Clocks::OfHost,
                },
                mode: pick(random, &modes),
                style: pick(random, &[Style::Exec, Style::Exec, Style::Exec, Style::WhilePid]),
                limit,
                ttl,
                at_least: (random.below(6) == 0).then(|| millis(random, 200, 2_000)),
                lasting,
                stubborn: random.below(2) == 0,
                min_replicas,
                next: !first && random.below(6) == 0,
                start: if first { Duration::ZERO } else { millis(random, 0, 2_500) },
            }
        });
        let mut works: Vec<Work> = works.collect();
        let mut faults = Self::faults(kind, random, works.len() as u64);
        if !staged && works.len() > 3 && random.below(4) == 0 {
            faults.push(Self::stream(&mut works));
        }
        Self { kind, seed, staged, min_replicas, works, faults }
    }

    /// Lets the second worker die in the queue, and all later ones pass it with `--next`. Returns its
    /// death.
    fn stream(works: &mut [Work]) -> Fault {
        for (number, work) in (0..).zip(works.iter_mut().skip(1)) {
            work.start = Duration::from_millis(100) + number * STREAM;
            work.next = number > 0;
        }
        works[1].limit = WaitLimit::Forever;
        let what = What::Kill(Whom::Worker(1));
        Fault { what, at: STREAM, lasting: Duration::ZERO }
    }

    /// The modes of the workers of one round. Most rounds are about exclusion.
    fn modes(random: &mut Random, staged: bool) -> Vec<Mode> {
        let slots = Mode::Slots(2 + random.below(2) as usize);
        let (one, two) = (Mode::Reentrant(1), Mode::Reentrant(2));
        match random.below(8) {
            _ if std::env::var_os("RLOCK_TEST_SLOTS").is_some() => vec![slots],
            _ if staged => vec![Mode::Exclusive],
            0..3 => vec![Mode::Exclusive],
            3 => vec![Mode::Exclusive, Mode::Shared],
            4 => vec![slots],
            5 => vec![Mode::Exclusive, one, one, two],
            _ => vec![Mode::Exclusive, Mode::Exclusive, Mode::Shared, Mode::Shared, slots, one],
        }
    }

    fn faults(kind: Kind, random: &mut Random, workers: u64) -> Vec<Fault> {
        let servers = kind.servers() as u64;
        // Of a quorum, most workers keep a majority.
        let wires = |random: &mut Random| {
            let rare = |random: &mut Random| match kind.is_quorum() {
                true => random.below(1 << servers),
                false => 1,
            };
            std::array::from_fn(|_| random.below(1 << servers) & rare(random))
        };
        // All faults hit the same minority, except restarts.
        let first = random.below(servers);
        let minority = (first..).take(kind.minority()).map(|server| (server % servers) as usize);
        let mut minority: Vec<usize> = minority.collect();
        // A server whose clock is far ahead is one of them.
        let has_clocks = (0..kind.servers()).any(|server| kind.is_ahead(server));
        if has_clocks && !minority.iter().any(|server| kind.is_ahead(*server)) {
            minority[0] = 0;
        }
        let mut has_large = false;
        let mut faults: Vec<Fault> = Vec::new();
        for _ in 0..random.below(4) + u64::from(random.below(8) > 0) {
            let whom = |random: &mut Random| match random.below(3) {
                0 => Whom::Worker(random.below(workers) as usize),
                _ => Whom::Holder,
            };
            let what = match random.below(10) {
                0 | 1 => What::Stop(whom(random)),
                2 => What::Kill(whom(random)),
                3 => What::Terminate(whom(random)),
                4 => pick(random, &[What::Revoke, What::Free]),
                _ => match kind {
                    Kind::Server => match random.below(12) {
                        0 => What::Freeze,
                        1 => What::RestartEmpty(0),
                        2 => What::RestartWithData,
                        3 => What::Flush,
                        4 => What::DeleteKey,
                        5 => What::KillConnections,
                        6 | 10 | 11 => What::StepClock(0, step(random)),
                        7 => What::Part(wires(random)),
                        8 => What::Delay(wires(random), millis(random, 20, 200)),
                        _ => What::BreakReply(wires(random), random.below(40) as usize),
                    },
                    Kind::Files => pick(random, &[What::Flush, What::DeleteKey]),
                    Kind::Sentinel | Kind::Cluster if !has_large && random.below(3) > 0 => {
                        has_large = true;
                        match kind {
                            Kind::Sentinel => match random.below(6) {
                                0 | 1 => What::KillMaster,
                                2 | 3 => What::Freeze,
                                4 => What::FreezeReplica,
                                _ => What::StopSentinels(1 + random.below(3)),
                            },
                            _ => pick(
                                random,
                                &[What::KillMaster, What::FailOver, What::MoveSlot, What::Freeze],
                            ),
                        }
                    }
                    Kind::Sentinel | Kind::Cluster => {
                        pick(random, &[What::Flush, What::DeleteKey, What::KillConnections])
                    }
                    Kind::Quorum(_) => {
                        let server = pick(random, &minority);
                        match random.below(15) {
                            0 | 1 => What::FreezeServer(server),
                            2 => What::KillServer(server),
                            3 | 4 => What::RestartEmpty(server),
                            5..=7 => What::Part(wires(random)),
                            8 => What::DeleteKeyOf(server),
                            9 => What::Delay(wires(random), millis(random, 5, 40)),
                            10 => What::RefuseServer(server),
                            11..14 => What::StepClock(server, step(random)),
                            _ => What::BreakReply(wires(random), random.below(40) as usize),
                        }
                    }
                },
            };
            let (at, lasting) = (millis(random, 0, 3_500), millis(random, 0, 2_500));
            faults.push(Fault { what, at, lasting });
        }
        // Servers that restart one after another, whatever they forget.
        let restarts = |fault: &Fault| !matches!(fault.what, What::RestartEmpty(_));
        let mut on_servers = faults.iter().filter(|fault| fault.what.hits_a_server());
        if kind.is_quorum() && !has_clocks && !on_servers.any(restarts) {
            for fault in &mut faults {
                if let What::RestartEmpty(server) = &mut fault.what {
                    *server = random.below(servers) as usize;
                }
            }
        }
        faults
    }
}

#[test]
fn a_seed_reproduces_its_plan() {
    for kind in Kind::ALL {
        for seed in 0..1_000 {
            let plan = Plan::new(kind, seed);
            assert_eq!(format!("{plan:?}"), format!("{:?}", Plan::new(kind, seed)));
            assert!((2..=WORKERS).contains(&plan.works.len()), "{plan:?}");
        }
    }
}
