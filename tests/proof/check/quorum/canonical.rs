//! One form for all states that behave the same from now on: servers are sorted, fencing tokens,
//! tickets and attempts only have an order, and what is only shown is blank.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::acquisition::{self, make_proposal_canonical, make_view_canonical};
use super::client::{Client, Doing, Phase};
use super::scope::SERVERS;
use super::server::{AHEAD, LastReply, Line, Replied, Sent, Server, State, What, view_of};
use super::world::{World, run_id};
use crate::check::lock;
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

/// After this time, a server is old enough for any lease.
const OLD: Duration = Duration::from_secs(10);

/// Calls a function with each number of a kind.
type Each = fn(&mut World, &mut dyn FnMut(&mut u64));

impl World {
    pub(super) fn make_canonical(&mut self) {
        let clients = &mut self.clients;
        for (index, client) in clients.iter_mut().enumerate() {
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
                    let tick = self.scope.clients[index].tick;
                    acquisition::make_canonical(acquisition, now(), tick);
                    if let Some((then, view)) = waiter.seen.as_mut() {
                        make_view_canonical(view);
                        view.holders.clear();
                        (*then, view.fence, view.mode, view.holder_count) = (now(), None, None, 0);
                        view.now = ServerTime(0);
                        view.state = rlock::rules::lock::view::State::Free;
                    }
                    if let Doing::Attempt(began, _) = doing {
                        let age = now().since(*began);
                        let part = age.as_nanos() % tick.as_nanos();
                        *began = *began + Duration::from_nanos(part as u64);
                        *began = (*began).max(now() - OLD);
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
            for (client, line) in clients.iter().zip(&mut server.lines) {
                line.is_over &= !is_gone(client, line);
            }
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
                    (line.mail, line.late, line.is_over) = Default::default();
                    line.requests.clear();
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
        let may_ask =
            |client: &Client| matches!(client.phase, Phase::Idle) || client.is_acquiring();
        if self.clients.iter().any(may_ask) {
            self.rank(Self::each_fence);
        } else {
            // No client needs them anymore.
            self.each_fence(&mut |fence| *fence = (*fence).min(CLOCK));
        }
        self.rank(Self::each_ticket);
        self.rank_attempts();
        self.sort_servers();
    }

    /// Closes the gaps between numbers, but keeps whether one follows another directly, and which
    /// clock it is near.
    fn rank(&mut self, each: Each) {
        let mut all = BTreeSet::new();
        each(self, &mut |number| {
            all.insert(*number);
        });
        all.remove(&0);
        let far = all.split_off(&(CLOCK / 2 + FAR / 2));
        let ranks: BTreeMap<u64, u64> = [(CLOCK, all), (FAR, far)]
            .into_iter()
            .flat_map(|(clock, all)| ranks(clock, all))
            .collect();
        each(self, &mut |number| *number = ranks.get(number).copied().unwrap_or(*number));
    }

    fn each_fence(&mut self, change: &mut dyn FnMut(&mut u64)) {
        self.monitor.each_fence(change);
        for client in &mut self.clients {
            match &mut client.phase {
                Phase::Acquiring(_, acquisition, _) => acquisition::each_fence(acquisition, change),
                Phase::Holding(_, _, Some(renewing)) => {
                    for answer in &mut renewing.answers {
                        if let Some(Some(Renewal::Renewed { fence, left, .. })) = answer {
                            *left = Duration::ZERO;
                            change(&mut fence.0);
                        }
                    }
                }
                _ => {}
            }
        }
        for server in &mut self.servers {
            lock::each_fence(&mut server.lock, change);
            for line in &mut server.lines {
                for sent in line.requests.iter_mut().chain(&mut line.late) {
                    if let What::Ask(QuorumOp::Commit(_, held) | QuorumOp::Restore(held)) =
                        &mut sent.what
                    {
                        change(&mut held.0.0);
                    }
                }
                line.mail.iter_mut().flatten().for_each(|it| change(&mut it.fence.0));
                match &mut line.reply {
                    Some(Replied { reply: LastReply::To(reply), .. }) => {
                        if let Reply::Proposed(Proposal {
                            nominated: Some(Nomination { fence, .. }),
                            ..
                        })
                        | Reply::Answer(Answer::Granted { fence, .. })
                        | Reply::Heard(Some(Nomination { fence, .. })) = reply
                        {
                            change(&mut fence.0);
                        }
                        if let Some(Fence(fence)) =
                            view_of(reply).and_then(|view| view.fence.as_mut())
                        {
                            change(fence);
                        }
                    }
                    Some(Replied {
                        reply: LastReply::Renewal(Some(Renewal::Renewed { fence, left, .. })),
                        ..
                    }) => {
                        *left = Duration::ZERO;
                        change(&mut fence.0);
                    }
                    _ => {}
                }
            }
        }
    }

    fn each_ticket(&mut self, change: &mut dyn FnMut(&mut u64)) {
        for client in &mut self.clients {
            if let Phase::Acquiring(_, acquisition, _) = &mut client.phase {
                acquisition::each_ticket(acquisition, change);
            }
        }
        for server in &mut self.servers {
            lock::each_ticket(&mut server.lock, change);
            for line in &mut server.lines {
                for sent in line.requests.iter_mut().chain(&mut line.late) {
                    if let What::Ask(
                        QuorumOp::Propose(Some(ticket)) | QuorumOp::Commit(Some(ticket), _),
                    ) = &mut sent.what
                    {
                        change(&mut ticket.0);
                    }
                }
                if let Some(Replied { reply: LastReply::To(Reply::Proposed(place)), .. }) =
                    &mut line.reply
                {
                    change(&mut place.ticket.0);
                }
            }
        }
    }

    /// A server compares only the attempts of one client, whose next one is larger than all others.
    fn rank_attempts(&mut self) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            client.attempt = if client.has_ended() { 0 } else { LAST_ATTEMPT };
            for server in &mut self.servers {
                let mut all = BTreeSet::new();
                each_attempt(server, index, &mut |attempt| {
                    all.insert(*attempt);
                });
                each_attempt(server, index, &mut |attempt| {
                    *attempt = all.range(..=*attempt).count() as u64;
                });
            }
        }
    }

    /// Servers that differ only in their indexes are the same.
    fn sort_servers(&mut self) {
        let key = |member: usize| {
            let mut hasher = DefaultHasher::new();
            self.servers[member].hash(&mut hasher);
            for client in &self.clients {
                match &client.phase {
                    Phase::Acquiring(_, acquisition, _) => {
                        acquisition::hash_seat(acquisition, member, &mut hasher);
                    }
                    Phase::Holding(_, _, Some(renewing)) => {
                        (renewing.asked[member], &renewing.answers[member]).hash(&mut hasher);
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
                    let (asked, answers) = (renewing.asked, renewing.answers.clone());
                    for (place, &member) in order.iter().enumerate() {
                        renewing.asked[place] = asked[member];
                        renewing.answers[place] = answers[member].clone();
                    }
                }
                _ => {}
            }
        }
    }
}

/// The ranks of numbers that are near a clock.
fn ranks(clock: u64, mut all: BTreeSet<u64>) -> Vec<(u64, u64)> {
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

fn each_attempt(server: &mut Server, client: usize, change: &mut dyn FnMut(&mut u64)) {
    lock::each_attempt(&mut server.lock, &mut |token, attempt| {
        if whose(token).0 == client {
            change(attempt);
        }
    });
    let line = &mut server.lines[client];
    for sent in line.requests.iter_mut().chain(&mut line.late) {
        match sent {
            Sent { what: What::Ask(_), attempt, .. } => change(attempt),
            sent => sent.attempt = 0,
        }
    }
}
