//! One form for all states that behave the same from now on: servers are sorted, fencing tokens,
//! tickets and attempts only have an order, and what is only shown is blank.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::acquisition::{self, OLD, make_proposal_canonical, make_view_canonical, whole_ticks};
use super::client::{Client, Doing, Phase, Vote};
use super::server::{AHEAD, LastReply, Line, Replied, SERVERS, State, What, view_of};
use super::world::{World, run_id};
use crate::check::lock::{self, Number};
use crate::check::scope::whose;
use crate::check::time::{NOW, TICK, now};
use rlock::rules::quorum::Reply;
use rlock::rules::{Answer, Fence, Nomination, Proposal, QuorumOp, Renewal, ServerTime};

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
                Phase::Acquiring(waiter, acquisition, doing) => {
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
                    if let Some((then, view)) = waiter.seen.as_mut() {
                        make_view_canonical(view);
                        view.holders.clear();
                        (*then, view.fence, view.mode, view.holder_count) = (now(), None, None, 0);
                        view.now = ServerTime(0);
                        view.state = rlock::rules::lock::view::State::Free;
                    }
                    if let Doing::Attempt(began, _) = doing {
                        whole_ticks(began, tick);
                    }
                }
                Phase::Holding(..) | Phase::Idle => {}
                Phase::Ended(_) => {
                    for server in &mut self.servers {
                        let line = &mut server.lines[index];
                        (line.reply, line.listening) = (None, None);
                        line.mail.clear();
                        line.requests.iter_mut().for_each(|sent| sent.awaited = None);
                    }
                }
            }
        }
        for server in &mut self.servers {
            server.since = server.since.max(now() - OLD);
            let is_gone = |token: &str| {
                let client = whose(token).0;
                is_gone(&clients[client], &server.lines[client])
            };
            lock::make_canonical(&mut server.lock, server.clock, |id| !is_gone(id));
            server.lock.tombstones.retain(|mark| !is_gone(&mark.token));
            server.lock.generation.clear();
            for hold in &mut server.lock.holds {
                // All leases have the same length.
                hold.renewed = hold.renewed.map(|_| server.clock);
            }
            for line in &mut server.lines {
                if server.state == State::Dead {
                    (line.mail, line.late, line.requests) = Default::default();
                }
                line.mail.dedup();
                if let Some(Replied { reply: LastReply::To(reply), since, .. }) = &mut line.reply {
                    if let Some(since) = since {
                        *since = (*since).max(now() - OLD);
                    }
                    match reply {
                        Reply::Proposed(place) => make_proposal_canonical(place, TICK),
                        _ => view_of(reply).into_iter().for_each(make_view_canonical),
                    }
                }
            }
        }
        self.monitor.forget_ended(&self.clients);
    }

    /// Keeps only the order of numbers of one kind.
    pub(super) fn rank_numbers(&mut self) {
        let may_ask =
            |client: &Client| matches!(client.phase, Phase::Idle) || client.is_acquiring();
        let are_fences_needed = self.clients.iter().any(may_ask);
        let mut all: BTreeMap<Number, BTreeSet<u64>> = BTreeMap::new();
        self.each_number(&mut |kind, number| {
            all.entry(kind).or_default().insert(*number);
        });
        let ranks = |(kind, all): (Number, BTreeSet<u64>)| match kind {
            Number::Attempt(..) => (kind, all.into_iter().zip(1..).collect()),
            _ => (kind, ranks(all)),
        };
        let ranks: BTreeMap<Number, BTreeMap<u64, u64>> = all.into_iter().map(ranks).collect();
        self.each_number(&mut |kind, number| match kind {
            Number::Fence if !are_fences_needed => *number = (*number).min(CLOCK),
            kind => *number = ranks[&kind][number],
        });
    }

    fn each_number(&mut self, change: &mut dyn FnMut(Number, &mut u64)) {
        self.monitor.each_fence(&mut |fence| change(Number::Fence, fence));
        for client in &mut self.clients {
            match &mut client.phase {
                Phase::Acquiring(_, acquisition, _) => {
                    acquisition::each_number(acquisition, change);
                }
                Phase::Holding(_, _, Some(renewing)) => {
                    for vote in &mut renewing.votes {
                        if let Vote::Answered(Some(answer)) = vote {
                            settle_renewal(answer, change);
                        }
                    }
                }
                _ => {}
            }
        }
        for (member, server) in (0..).zip(&mut self.servers) {
            // A server compares only the attempts of one client.
            lock::each_number(&mut server.lock, &mut |kind, number| match kind {
                Number::Attempt(client, _) => change(Number::Attempt(client, member), number),
                Number::Arrival => change(Number::Ticket, number),
                kind => change(kind, number),
            });
            for (index, line) in server.lines.iter_mut().enumerate() {
                for sent in line.requests.iter_mut().chain(&mut line.late) {
                    let What::Ask(op) = &mut sent.what else {
                        sent.attempt = 0;
                        continue;
                    };
                    change(Number::Attempt(index, member), &mut sent.attempt);
                    if let QuorumOp::Propose(Some(ticket)) | QuorumOp::Commit(Some(ticket), _) = op
                    {
                        change(Number::Ticket, &mut ticket.0);
                    }
                    if let QuorumOp::Commit(_, held) | QuorumOp::Restore(held) = op {
                        change(Number::Fence, &mut held.0.0);
                    }
                }
                line.mail
                    .iter_mut()
                    .flatten()
                    .for_each(|it| change(Number::Fence, &mut it.fence.0));
                match line.reply.as_mut().map(|reply| &mut reply.reply) {
                    Some(LastReply::To(reply)) => each_number_of(reply, change),
                    Some(LastReply::Renewal(Some(renewal))) => settle_renewal(renewal, change),
                    _ => {}
                }
            }
        }
    }

    /// Servers that differ only in their indexes are the same.
    pub(super) fn sort_servers(&mut self) {
        let key = |member: usize| {
            let mut hasher = DefaultHasher::new();
            self.servers[member].hash(&mut hasher);
            for client in &self.clients {
                match &client.phase {
                    Phase::Acquiring(_, acquisition, _) => {
                        acquisition::hash_seat(acquisition, member, &mut hasher);
                    }
                    Phase::Holding(_, _, Some(renewing)) => {
                        renewing.votes[member].hash(&mut hasher);
                    }
                    _ => {}
                }
            }
            hasher.finish()
        };
        let keys: Vec<u64> = (0..SERVERS).map(key).collect();
        let mut order: Vec<usize> = (0..SERVERS).collect();
        order.sort_by_key(|member| keys[*member]);
        self.servers = order.iter().map(|member| self.servers[*member].clone()).collect();
        self.names = order.iter().map(|member| self.names[*member]).collect();
        for client in &mut self.clients {
            match &mut client.phase {
                Phase::Acquiring(_, acquisition, _) => {
                    acquisition::reorder(acquisition, &order, run_id)
                }
                Phase::Holding(_, _, Some(renewing)) => {
                    let votes = renewing.votes.clone();
                    renewing.votes = std::array::from_fn(|place| votes[order[place]].clone());
                }
                _ => {}
            }
        }
    }
}

fn each_number_of(reply: &mut Reply, change: &mut dyn FnMut(Number, &mut u64)) {
    if let Reply::Proposed(proposal) = reply {
        change(Number::Ticket, &mut proposal.ticket.0);
    }
    if let Reply::Proposed(Proposal { nominated: Some(Nomination { fence, .. }), .. })
    | Reply::Answer(Answer::Granted { fence, .. })
    | Reply::Heard(Some(Nomination { fence, .. })) = reply
    {
        change(Number::Fence, &mut fence.0);
    }
    if let Some(Fence(fence)) = view_of(reply).and_then(|view| view.fence.as_mut()) {
        change(Number::Fence, fence);
    }
}

fn settle_renewal(renewal: &mut Renewal, change: &mut dyn FnMut(Number, &mut u64)) {
    if let Renewal::Renewed { fence, left, .. } = renewal {
        *left = Duration::ZERO;
        change(Number::Fence, &mut fence.0);
    }
}

/// Closes the gaps between numbers, but keeps whether one follows another directly, and which clock
/// it is near.
fn ranks(mut near: BTreeSet<u64>) -> BTreeMap<u64, u64> {
    near.remove(&0);
    let far = near.split_off(&(CLOCK / 2 + FAR / 2));
    let near = ranks_near(CLOCK, near).into_iter().chain(ranks_near(FAR, far));
    near.chain([(0, 0)]).collect()
}

/// The ranks of numbers that are near a clock.
fn ranks_near(clock: u64, mut all: BTreeSet<u64>) -> Vec<(u64, u64)> {
    all.insert(clock);
    let all: Vec<u64> = all.into_iter().collect();
    let at = all.partition_point(|number| *number < clock);
    let mut ranked = all.clone();
    for index in at + 1..all.len() {
        ranked[index] = ranked[index - 1] + (all[index] - all[index - 1]).min(2);
    }
    for index in (0..at).rev() {
        ranked[index] = ranked[index + 1] - (all[index + 1] - all[index]).min(2);
    }
    all.into_iter().zip(ranked).collect()
}

/// Whether a client has ended, and nothing that it sent can still reach a server.
fn is_gone(client: &Client, line: &Line) -> bool {
    client.has_ended() && line.requests.is_empty() && line.late.is_empty()
}
