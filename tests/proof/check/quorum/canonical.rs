//! One form for all states that behave the same from now on: fencing tokens and attempts only have
//! an order, and what is only shown is blank.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};

use super::acquisition::{self, OLD, fences_of};
use super::client::Phase;
use super::server::{AHEAD, Server, What};
use super::world::World;
use crate::check::lock;
use crate::check::time::{NOW, now};
use rlock::rules::Answer;
use rlock::rules::quorum::{MemberAnswer, MemberState, Nomination, QuorumOp};

/// What the servers' clocks show in microseconds.
const CLOCK: u64 = NOW * 1_000;

/// The same for a clock that is far ahead.
const FAR: u64 = CLOCK + AHEAD.as_micros() as u64;

/// The number of a client's last request: more than any that a server compares.
const LAST_ATTEMPT: u64 = 1_000;

impl World {
    /// Blanks what is only shown, and gives times that no longer matter one value.
    pub(super) fn settle_times(&mut self) {
        let clients = &mut self.clients;
        for (index, client) in clients.iter_mut().enumerate() {
            // Its next request is larger than all that a server compares it with.
            client.attempt = if client.has_ended() { 0 } else { LAST_ATTEMPT };
            match &mut client.phase {
                Phase::Acquiring(waiter, acquisition, _) => {
                    for server in &mut self.servers {
                        let line = &mut server.lines[index];
                        let sent = line.requests.iter_mut().chain(&mut line.late);
                        let rounds = sent.map(|sent| &mut sent.round);
                        let listening = line.listening.as_mut().map(|(round, _)| round);
                        let reply = line.reply.as_mut().map(|reply| &mut reply.round);
                        for round in rounds.chain(listening).chain(reply) {
                            *round = u64::from(*round == acquisition.round);
                        }
                    }
                    let tick = self.course.scope.clients[index].tick;
                    acquisition::make_canonical(acquisition, tick);
                    // A quorum does not need it.
                    waiter.last_view = None;
                }
                Phase::Holding(..) | Phase::Idle => {}
                Phase::Ended(_) => {
                    self.servers.iter_mut().for_each(|server| server.lines[index].mail.clear());
                }
            }
        }
        for server in &mut self.servers {
            server.since = server.since.max(now() - OLD);
            let clock = server.clock;
            for it in server.locks() {
                lock::make_canonical(it, clock, |_| true);
                it.generation.clear();
            }
            for (index, line) in server.lines.iter_mut().enumerate() {
                let sent = line.requests.iter_mut().chain(&mut line.late);
                let attempts = sent.map(|sent| &mut sent.attempt);
                lock::renumber_attempts(&mut server.lock, index, attempts);
            }
        }
    }

    /// Of fencing tokens, keeps the order, and whether one follows another directly.
    pub(super) fn rank_fences(&mut self) {
        let fences = self.fences();
        let ranks = ranks(fences.iter().map(|fence| **fence).collect());
        fences.into_iter().for_each(|fence| *fence = ranks[fence]);
    }

    fn fences(&mut self) -> Vec<&mut u64> {
        let mut all = vec![&mut self.monitor.granted];
        all.extend(&mut self.monitor.floors);
        for client in &mut self.clients {
            if let Phase::Acquiring(_, acquisition, _) = &mut client.phase {
                all.extend(acquisition::fences(acquisition));
            }
        }
        for Server { lock, replica, old, lines, .. } in &mut self.servers {
            let replica = replica.iter_mut().map(|replica| &mut replica.lock);
            for lock in [lock].into_iter().chain(old).chain(replica) {
                all.push(&mut lock.fence);
                all.extend(lock.holds.iter_mut().map(|hold| &mut hold.fence));
            }
            for line in lines {
                for sent in line.requests.iter_mut().chain(&mut line.late) {
                    if let What::Ask(QuorumOp::Commit(_, held) | QuorumOp::Restore(held)) =
                        &mut sent.what
                    {
                        all.push(&mut held.0.0);
                    }
                }
                all.extend(line.mail.iter_mut().flatten().map(|it| &mut it.fence.0));
                match line.reply.as_mut().map(|reply| &mut reply.reply) {
                    Some(MemberAnswer::Proposed(proposal)) => all.extend(fences_of(proposal)),
                    Some(
                        MemberAnswer::Answer(Answer::Granted { fence, .. })
                        | MemberAnswer::Heard(Some(Nomination { fence, .. })),
                    ) => all.push(&mut fence.0),
                    _ => {}
                }
            }
        }
        all
    }
}

impl Hash for World {
    /// Servers that differ only in their indexes are the same.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut clients = self.clients.clone();
        let known = clients.iter_mut().map(|client| match &mut client.phase {
            Phase::Acquiring(_, acquisition, _) => std::mem::take(&mut acquisition.members.0),
            _ => Vec::new(),
        });
        let mut known: Vec<Vec<MemberState>> = known.collect();
        let server = |(member, server): (usize, &Server)| {
            let mut known: Vec<_> =
                known.iter_mut().filter_map(|members| members.get_mut(member)).collect();
            known.iter_mut().filter_map(|state| state.run.as_mut()).for_each(|run| run.id.clear());
            BuildHasherDefault::<DefaultHasher>::default().hash_one((server, known))
        };
        let mut servers: Vec<u64> = self.servers.iter().enumerate().map(server).collect();
        servers.sort_unstable();
        (&self.course, servers, clients, &self.monitor).hash(hasher);
    }
}

/// Closes the gaps between fencing tokens, but keeps whether one follows another directly, and which
/// clock it is near.
fn ranks(mut all: BTreeSet<u64>) -> BTreeMap<u64, u64> {
    all.extend([0, CLOCK, FAR]);
    let mut last = (0, 0);
    let ranked = all.into_iter().map(|fence| {
        let next = last.1 + (fence - last.0).min(2);
        last = (fence, if [CLOCK, FAR].contains(&fence) { fence } else { next });
        last
    });
    ranked.collect()
}
