//! What a round does, all of it from its seed.

use std::time::Duration;

use super::faults::{Effect, Fault, Hit, MOVES, Move, WORKERS, What, Whom};
use super::kind::Kind;
use crate::support::random::Random;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Exclusive,
    Shared,
    Slots(usize),
    /// Exclusive, and open to commands of the same owner.
    Reentrant(u64),
}

/// The clocks of a client, which may be others than those of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clocks {
    #[default]
    OfHost,
    /// Its time of day is hours ahead.
    Wall,
    /// Its clock since boot is a day ahead, as in a container.
    Boot,
}

/// What a command does besides its work, to make it hard for rlock to look after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storm {
    /// Daemons that each start the next one and end.
    Orphans,
    /// As `Orphans`, each in its own session.
    Sessions,
    /// Thousands of orphans that only wait.
    Idle,
    Signals,
    /// To a reader that stalls.
    Output,
}

impl Storm {
    const ALL: [Self; 5] = [Self::Orphans, Self::Sessions, Self::Idle, Self::Signals, Self::Output];

    /// Its name in the command.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Work {
    pub clocks: Clocks,
    pub mode: Mode,
    /// A script with `acquire --while-pid`, and not `exec`.
    pub is_script: bool,
    /// How long it waits for the lock at most.
    pub limit: Option<Duration>,
    pub ttl: Duration,
    pub at_least: Option<Duration>,
    /// How long the command runs.
    pub lasting: Duration,
    /// Whether the command ignores SIGTERM.
    pub stubborn: bool,
    pub storm: Option<Storm>,
    /// From the start of the round.
    pub start: Duration,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub seed: u64,
    /// How many replicas each grant and renewal waits for.
    pub min_replicas: u64,
    pub works: Vec<Work>,
    pub faults: Vec<Fault>,
}

fn millis(random: &mut Random, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + random.below(to - from))
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

impl Plan {
    /// What the fault may cause by docs/promises.md. `worker` is the one that it hits.
    pub fn effect(&self, what: What, worker: usize) -> Effect {
        match what {
            What::Stop(_) | What::Suspend(_) => Effect::Stops(worker),
            What::Kill(_) | What::Terminate(_) => Effect::Ends(worker),
            What::Revoke => Effect::Revokes,
            What::Free => Effect::Frees,
            What::BreakReply(..) => Effect::Breaks,
            What::Part(wires) if self.kind.is_quorum() => Effect::Parts(wires),
            What::Part(_) | What::Delay(..) => Effect::Delays,
            What::OnServer(server, hit)
                if self.kind.is_quorum() && hit != Hit::Move(Move::TwoMasters) =>
            {
                Effect::FailsOne(server)
            }
            What::OnServer(_, hit) => match hit {
                Hit::KillConnections => Effect::Breaks,
                Hit::DeleteKey => Effect::Revokes,
                Hit::Flush | Hit::RestartEmpty => Effect::Loses,
                Hit::StepClock(0..) => Effect::Hurries,
                Hit::StepClock(_) => Effect::Prolongs,
                Hit::Move(how) => {
                    let whole = !matches!(how, Move::Lag | Move::TwoMasters);
                    Effect::Moves { whole, frees: !whole && self.min_replicas == 0 }
                }
                // Locks survive a failover to any replica if all have confirmed them.
                _ if what.may_replace_master(self.kind)
                    && self.min_replicas < self.kind.replicas() =>
                {
                    Effect::FailsOver
                }
                _ => Effect::Delays,
            },
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

    /// Whether this worker reaches the servers through its own proxies. Of names that move, every
    /// other one uses the names themselves.
    pub fn has_wires(kind: Kind, seed: u64, worker: usize) -> bool {
        kind.has_wires() && (!kind.moves() || (seed + worker as u64).is_multiple_of(2))
    }

    /// If it is hostile, some commands make storms, and hosts are suspended.
    pub fn new(kind: Kind, seed: u64, is_hostile: bool) -> Self {
        let random = &mut Random(seed);
        let min_replicas = random.below(kind.replicas() + 1);
        let longest = if kind.replicas() > 0 { 5_000 } else { 3_000 };
        let shortest = if kind == Kind::Endpoint { 2_000 } else { 1_000 };
        // All clients of a lock on a quorum use the same TTL.
        let common = kind.is_quorum().then(|| pick(random, &[1_000, 3_000]));
        let common = common.map(Duration::from_millis);
        let modes = Self::modes(random);
        let works = (0..2 + random.below(WORKERS as u64 - 1)).map(|number| {
            let ttl = common.unwrap_or_else(|| millis(random, shortest, longest));
            let first = number == 0;
            let limit = match random.below(8) {
                _ if first => None,
                0 => Some(Duration::ZERO),
                1 | 2 => Some(millis(random, 500, 4_000)),
                _ => None,
            };
            // The first one runs beyond its lease, so that a fault can make it lose the lock.
            let lasting = match first {
                true => ttl + millis(random, 300, 2_000),
                false => millis(random, 30, 1_500),
            };
            Work {
                clocks: match random.below(8) {
                    // All clients of local files have the time of day of one host.
                    0 if kind != Kind::Files => Clocks::Wall,
                    1 => Clocks::Boot,
                    _ => Clocks::OfHost,
                },
                mode: pick(random, &modes),
                is_script: random.below(4) == 0,
                limit,
                ttl,
                at_least: (random.below(6) == 0).then(|| millis(random, 200, 2_000)),
                lasting,
                stubborn: random.below(2) == 0,
                storm: None,
                start: if first { Duration::ZERO } else { millis(random, 0, 2_500) },
            }
        });
        let mut works: Vec<Work> = works.collect();
        let mut faults = Self::faults(kind, seed, random, works.len() as u64);
        if is_hostile {
            // Others than above, so that the rest of the plan is the same without.
            let random = &mut Random(!seed);
            for work in &mut works {
                work.storm = (random.below(3) == 0).then(|| pick(random, &Storm::ALL));
            }
            if random.below(3) == 0 {
                let (at, lasting) = (millis(random, 0, 3_500), millis(random, 0, 5_000));
                faults.push(Fault { what: What::Suspend(Whom::Holder), at, lasting });
            }
        }
        Self { kind, seed, min_replicas, works, faults }
    }

    /// The modes of the workers of one round. Most rounds are about exclusion.
    fn modes(random: &mut Random) -> Vec<Mode> {
        let slots = Mode::Slots(2 + random.below(2) as usize);
        let (one, two) = (Mode::Reentrant(1), Mode::Reentrant(2));
        match random.below(8) {
            _ if std::env::var_os("RLOCK_TEST_SLOTS").is_some() => vec![slots],
            0..4 => vec![Mode::Exclusive],
            4 => vec![Mode::Exclusive, Mode::Shared],
            5 => vec![slots],
            6 => vec![Mode::Exclusive, one, one, two],
            _ => vec![Mode::Exclusive, Mode::Exclusive, Mode::Shared, Mode::Shared, slots, one],
        }
    }

    fn faults(kind: Kind, seed: u64, random: &mut Random, workers: u64) -> Vec<Fault> {
        let servers = kind.servers() as u64;
        // All faults hit the same minority, except restarts.
        let first = random.below(servers);
        let minority = (first..).take(kind.minority()).map(|server| (server % servers) as usize);
        let minority: Vec<usize> = minority.collect();
        let only = std::env::var("RLOCK_TEST_FAILOVER").ok();
        let moves = MOVES.iter().filter(|(name, _)| only.as_deref().is_none_or(|it| it == *name));
        let moves: Vec<Move> = moves.map(|(_, how)| *how).collect();
        // On an endpoint, the moves of the name are the failovers.
        let mut fails_over = kind == Kind::Endpoint;
        let mut faults: Vec<Fault> = Vec::new();
        for _ in 0..random.below(4) + u64::from(random.below(8) > 0) {
            let server = pick(random, &minority);
            let whom = match random.below(3) {
                0 => Whom::Worker(random.below(workers) as usize),
                _ => Whom::Holder,
            };
            let what = match random.below(10) {
                0..5 if kind.moves() => What::OnServer(server, Hit::Move(pick(random, &moves))),
                0 | 1 => What::Stop(whom),
                2 => What::Kill(whom),
                3 => What::Terminate(whom),
                4 => pick(random, &[What::Revoke, What::Free]),
                _ if kind.replicas() > 0 && !fails_over && random.below(3) > 0 => {
                    fails_over = true;
                    let orderly = if kind == Kind::Cluster { Hit::FailOver } else { Hit::Freeze };
                    What::OnServer(server, pick(random, &[Hit::Down, Hit::Freeze, orderly]))
                }
                5..8 if kind.has_wires() => Self::fault_of_the_network(kind, seed, random),
                _ => What::OnServer(server, Self::hit(kind, random)),
            };
            let (at, lasting) = (millis(random, 0, 3_500), millis(random, 0, 2_500));
            faults.push(Fault { what, at, lasting });
        }
        // Servers that restart or are promoted one after another, whatever they forget.
        let mut others = faults.iter().filter(|fault| match fault.what {
            What::OnServer(_, Hit::Move(how)) => how == Move::TwoMasters,
            What::OnServer(_, hit) => hit != Hit::RestartEmpty,
            What::Part(_) | What::Delay(..) | What::BreakReply(..) => true,
            _ => false,
        });
        if kind.is_quorum() && others.next().is_none() {
            for fault in &mut faults {
                if let What::OnServer(server, _) = &mut fault.what {
                    *server = random.below(servers) as usize;
                }
            }
        }
        faults
    }

    /// Something that happens to a server. What matters more is listed twice.
    fn hit(kind: Kind, random: &mut Random) -> Hit {
        use Hit::{Down, Flush, Freeze, KillConnections, RestartEmpty};
        let step = 100 + random.below(4_900).cast_signed();
        let clock = pick(random, &[Hit::StepClock(step), Hit::StepClock(-step)]);
        let own: &[Hit] = match kind {
            Kind::Files => &[],
            Kind::Sentinel | Kind::Cluster | Kind::Endpoint => &[Flush, KillConnections],
            Kind::Server => &[Flush, KillConnections, Freeze, Down, RestartEmpty, clock, clock],
            Kind::QuorumOfEndpoints(_) => &[Freeze, KillConnections],
            Kind::Quorum(_) => &[Freeze, Down, RestartEmpty, RestartEmpty, clock, clock],
        };
        pick(random, &[own, &[Hit::DeleteKey]].concat())
    }

    fn fault_of_the_network(kind: Kind, seed: u64, random: &mut Random) -> What {
        let servers = kind.servers() as u64;
        // Of a quorum, most workers keep a majority.
        let wires = std::array::from_fn(|worker| match kind.is_quorum() {
            _ if !Self::has_wires(kind, seed, worker) => 0,
            true => random.below(1 << servers) & random.below(1 << servers),
            false => random.below(1 << servers),
        });
        let slow = if kind.is_quorum() { millis(random, 5, 40) } else { millis(random, 20, 200) };
        let bytes = random.below(40) as usize;
        let part = What::Part(wires);
        pick(random, &[part, part, What::Delay(wires, slow), What::BreakReply(wires, bytes)])
    }
}
