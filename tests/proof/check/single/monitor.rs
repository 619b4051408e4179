//! What the properties need to know about earlier events.

use std::time::Duration;

use super::connection::{Reply, Sent, What};
use crate::check::property::Property;
use crate::check::scope::{Scope, whose};
use crate::check::time::{NOW, TICK_MILLIS};
use rlock::rules::model::Lock;
use rlock::rules::model::lock::CLAIM_WINDOW;
use rlock::rules::{Answer, Mode, Verdict};

/// A waiter that has been silent for this many ticks counts as dead: no client has to wait for it.
const DEAD: u8 = 20;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Monitor {
    /// The waiters in the order in which the server first heard of them.
    pub(super) order: Vec<Place>,
    /// The largest fencing token granted.
    pub(super) granted: u64,
    /// The largest with which a command has begun, by mode: exclusive, shared, slots.
    pub(super) begun: [u64; 3],
    pub(super) clients: Vec<Watched>,
    /// For how many ticks the lock has been idle beside a living waiter.
    pub(super) idle: u8,
    /// For how many ticks the server has been without its data; not counted further than matters.
    pub(super) forgot: Option<u8>,
    /// Whether a waiter died or a message was lost or late, so that heartbeats must help.
    pub(super) shaken: bool,
    /// Whether the server has ever lost its data.
    lost_data: bool,
}

/// The place of a waiter.
#[derive(Clone, Debug, Hash)]
pub(super) struct Place {
    pub(super) client: usize,
    round: u8,
    /// For how many ticks the server has not heard of it.
    silent: u8,
}

impl Place {
    fn is_of(&self, client: usize, round: u8) -> bool {
        (self.client, self.round) == (client, round)
    }

    /// Whether it comes before a new place.
    pub(super) fn precedes(&self, scope: &Scope, is_next: bool) -> bool {
        !is_next || scope.clients[self.client].is_next()
    }

    /// Whether nobody may overtake it: it was never silent for two heartbeats and a claim window.
    pub(super) fn counts(&self, scope: &Scope) -> bool {
        let silent = Duration::from_millis(u64::from(self.silent) * TICK_MILLIS);
        let heartbeat = scope.ttl(self.client) / 3;
        silent <= 2 * heartbeat + Duration::from_millis(CLAIM_WINDOW)
    }
}

/// What is remembered of one client.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Watched {
    /// For how many ticks its hold has been revoked.
    pub(super) revoked: Option<u8>,
    /// The rounds whose tokens are over, a bit each.
    pub(super) over: u8,
    /// Until when `--at-least` keeps the lock for it, in milliseconds, and whether it has claimed
    /// it.
    pub(super) kept: Option<(u64, bool)>,
    /// The round in which its request with `--supersede` first arrived, and in which a newer one
    /// ended it.
    arrived: Option<u8>,
    superseded: Option<u8>,
}

/// What the properties compare of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) client: usize,
    pub(super) round: u8,
    /// It was not reinstated.
    pub(super) is_whole: bool,
    pub(super) fence: u64,
    pub(super) deadline: u64,
}

pub(super) fn facts(lock: &Lock) -> impl Iterator<Item = Fact> {
    lock.holds.iter().map(|hold| {
        let (client, round, is_whole) = whose(&hold.token);
        Fact { client, round, is_whole, fence: hold.fence, deadline: hold.deadline }
    })
}

/// What one call has done to the lock.
pub(super) struct Call<'a> {
    pub(super) scope: &'a Scope,
    /// Who called, and in which round; `None` for an operator.
    pub(super) caller: Option<(usize, u8)>,
    /// Whether the caller is still alive.
    pub(super) is_alive: bool,
    pub(super) before: &'a [Fact],
    pub(super) after: &'a Lock,
}

impl Call<'_> {
    fn is_queued(&self, sent: &Sent) -> bool {
        self.after.queue.iter().any(|waiter| {
            let (client, round, _) = whose(&waiter.token);
            (client, round) == (sent.client, sent.round)
        })
    }

    pub(super) fn granted(&self) -> impl Iterator<Item = Fact> {
        let is_known = |fact: &Fact| {
            self.before.iter().any(|old| {
                (old.client, old.round, old.fence) == (fact.client, fact.round, fact.fence)
            })
        };
        facts(self.after).filter(move |fact| fact.is_whole && !is_known(fact))
    }
}

impl Monitor {
    pub(super) fn new(clients: usize) -> Self {
        Self { clients: vec![Watched::default(); clients], ..Self::default() }
    }

    /// What a call asks for, before it is judged.
    pub(super) fn asked(
        &mut self,
        call: &Call<'_>,
        sent: Option<&Sent>,
        reply: Option<&Reply>,
    ) -> Result<(), Property> {
        if let Some(Sent { client, round, what: what @ (What::Leave | What::Release) }) = sent {
            self.order.retain(|place| !place.is_of(*client, *round));
            // A client that gives up a grant has not used it.
            self.clients[*client].kept.take_if(|_| *what == What::Leave);
        }
        if let (Some(sent), Some(Reply::Verdict(verdict))) = (sent, reply) {
            self.supersede(call, sent, verdict)?;
        }
        Ok(())
    }

    /// Remembers what a call did.
    pub(super) fn executed(&mut self, call: &Call<'_>, sent: Option<&Sent>, reply: Option<&Reply>) {
        for fact in call.granted() {
            self.granted = self.granted.max(fact.fence);
            self.order.retain(|place| !place.is_of(fact.client, fact.round));
            let terms = &call.scope.clients[fact.client];
            let at_least = terms.requests[0].at_least.as_millis() as u64;
            let watched = &mut self.clients[fact.client];
            watched.revoked = None;
            watched.kept = (at_least > 0).then_some((NOW + at_least, false));
        }
        let (Some(sent), Some(reply)) = (sent, reply) else { return };
        let client = sent.client;
        match (&sent.what, reply) {
            (_, Reply::Verdict(Verdict::Answer(Answer::Queued { .. }))) => {
                let silent = if call.is_alive { 0 } else { DEAD };
                let (client, round) = (sent.client, sent.round);
                match self.order.iter_mut().find(|place| place.is_of(client, round)) {
                    Some(place) if place.counts(call.scope) => place.silent = silent,
                    // It may have lost its place.
                    Some(_) => {}
                    None => {
                        let is_next = call.scope.clients[client].is_next();
                        let precedes = |place: &Place| place.precedes(call.scope, is_next);
                        let index = self.order.iter().take_while(|place| precedes(place)).count();
                        self.order.insert(index, Place { client, round, silent });
                    }
                }
            }
            (_, Reply::Verdict(Verdict::Answer(Answer::Granted { .. }))) => {
                if let Some((_, is_claimed)) = &mut self.clients[client].kept {
                    *is_claimed = true;
                }
            }
            // A server that has lost its data cannot tell a late copy from a waiter.
            (What::Release, _) if self.lost_data && call.is_queued(sent) => {}
            (What::Leave | What::Release, _) => {
                self.clients[client].over |= 1 << sent.round;
            }
            _ => {}
        }
    }

    /// Of the waiting requests with `--supersede`, only the newest may remain. A request counts
    /// from its second call, or from its grant.
    fn supersede(
        &mut self,
        call: &Call<'_>,
        sent: &Sent,
        verdict: &Verdict,
    ) -> Result<(), Property> {
        let supersedes = call.scope.clients[sent.client].supersedes();
        let is_second = matches!(sent.what, What::Acquire { arrival: Some(_), .. });
        let this = (sent.client, sent.round);
        let is_granted = call.granted().any(|fact| (fact.client, fact.round) == this);
        let others = |this: &(usize, &mut Watched)| this.0 != sent.client;
        match verdict {
            Verdict::Answer(Answer::Superseded(_)) => {
                self.order.retain(|place| !place.is_of(sent.client, sent.round));
                let mut others = self.clients.iter_mut().enumerate().filter(others);
                // A server that has lost its data may have forgotten the newest.
                match self.lost_data || others.any(|(_, other)| other.arrived.is_some()) {
                    true => Ok(()),
                    false => Err(Property::TheNewestWins),
                }
            }
            Verdict::Answer(Answer::Queued { .. }) if !is_second => Ok(()),
            Verdict::Answer(Answer::Granted { .. }) if !is_granted => Ok(()),
            Verdict::Answer(Answer::Queued { .. } | Answer::Granted { .. }) if supersedes => {
                let Self { order, clients, .. } = self;
                let watched = &mut clients[sent.client];
                if watched.arrived.replace(sent.round) != Some(sent.round) {
                    for (_, other) in clients.iter_mut().enumerate().filter(others) {
                        other.superseded = other.arrived;
                    }
                    order.retain(|place| clients[place.client].superseded != Some(place.round));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a newer request has ended this one.
    pub(super) fn is_superseded(&self, fact: &Fact) -> bool {
        self.clients[fact.client].superseded == Some(fact.round)
    }

    /// A command begins under a lock with this fencing token.
    pub(super) fn begun(
        &mut self,
        scope: &Scope,
        client: usize,
        fence: u64,
    ) -> Result<(), Property> {
        let terms = &scope.clients[client];
        let class = match terms.mode {
            Mode::Exclusive => 0,
            Mode::Shared => 1,
            Mode::Slots(_) => 2,
        };
        let is_rival = |other: usize| (other != class || class == 0) && !terms.may_enter();
        if (0..3).any(|other| is_rival(other) && self.begun[other] >= fence) {
            return Err(Property::FencesGrow);
        }
        self.begun[class] = self.begun[class].max(fence);
        Ok(())
    }

    pub(super) fn ended(&mut self, client: usize) {
        let watched = &mut self.clients[client];
        watched.revoked = None;
        watched.kept.take_if(|(_, is_claimed)| !*is_claimed);
    }

    /// A client dies, so that nobody has to wait for it.
    pub(super) fn died(&mut self, client: usize) {
        let its = self.order.iter_mut().filter(|place| place.client == client);
        its.for_each(|place| place.silent = DEAD);
    }

    /// All holds are being revoked.
    pub(super) fn all_revoked(&mut self, lock: &Lock) {
        for fact in facts(lock).filter(|fact| fact.deadline >= NOW && fact.is_whole) {
            self.clients[fact.client].revoked.get_or_insert(0);
        }
        self.clients.iter_mut().for_each(|watched| watched.kept = None);
    }

    pub(super) fn forgotten(&mut self, told: bool) {
        self.order.clear();
        self.lost_data = true;
        for watched in &mut self.clients {
            *watched = Watched { revoked: watched.revoked, ..Watched::default() };
        }
        if !told {
            self.forgot = Some(0);
        }
    }

    pub(super) fn tick(&mut self) {
        for place in &mut self.order {
            place.silent = (place.silent + 1).min(DEAD);
        }
        for watched in &mut self.clients {
            watched.revoked = watched.revoked.map(|ticks| (ticks + 1).min(20));
            watched.kept = watched.kept.map(|(until, claimed)| (until - TICK_MILLIS, claimed));
            watched.kept.take_if(|(until, _)| *until < NOW);
        }
        self.forgot = self.forgot.map(|ticks| ticks + 1).filter(|ticks| *ticks < 10);
    }

    pub(super) fn each_fence(&mut self, change: &mut dyn FnMut(&mut u64)) {
        change(&mut self.granted);
        self.begun.iter_mut().for_each(change);
    }
}
