//! What the properties need to know about earlier events.

use std::time::Duration;

use super::connection::{Reply, What};
use crate::check::property::Property;
use crate::check::scope::{Scope, is_whole, whose};
use crate::check::time::{NOW, TICK_MILLIS};
use rlock::rules::model::Lock;
use rlock::rules::model::lock::{CLAIM_WINDOW, Waiter};
use rlock::rules::{Answer, Verdict};

/// A waiter that has been silent for this many ticks counts as dead: no client has to wait for it.
const DEAD: u8 = 20;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Monitor {
    /// The waiters in the order in which the server first heard of them.
    pub(super) order: Vec<Place>,
    /// The largest fencing token granted.
    pub(super) granted: u64,
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
    whose: (usize, u8),
    /// For how many ticks the server has not heard of it.
    silent: u8,
}

impl Place {
    pub(super) fn client(&self) -> usize {
        self.whose.0
    }

    /// Whether it comes before a new place.
    pub(super) fn precedes(&self, scope: &Scope, is_next: bool) -> bool {
        !is_next || scope.clients[self.client()].is_next()
    }

    /// Whether nobody may overtake it: it was never silent for two heartbeats and a claim window.
    pub(super) fn counts(&self, scope: &Scope) -> bool {
        let silent = Duration::from_millis(u64::from(self.silent) * TICK_MILLIS);
        let heartbeat = scope.ttl(self.client()) / 3;
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
    pub(super) whose: (usize, u8),
    /// It was not reinstated.
    pub(super) is_whole: bool,
    pub(super) fence: u64,
    pub(super) deadline: u64,
}

impl Fact {
    pub(super) fn client(&self) -> usize {
        self.whose.0
    }
}

pub(super) fn facts(lock: &Lock) -> impl Iterator<Item = Fact> {
    lock.holds.iter().map(|hold| Fact {
        whose: whose(&hold.token),
        is_whole: is_whole(&hold.token),
        fence: hold.fence,
        deadline: hold.deadline,
    })
}

/// What one call has done to the lock.
pub(super) struct Call<'a> {
    pub(super) scope: &'a Scope,
    /// Who called, what it asked, and the reply; `None` for an operator.
    pub(super) request: Option<((usize, u8), &'a What, &'a Reply)>,
    /// Whether the caller is still alive.
    pub(super) is_alive: bool,
    pub(super) before: &'a [Fact],
    pub(super) after: &'a Lock,
}

impl Call<'_> {
    pub(super) fn granted(&self) -> impl Iterator<Item = Fact> {
        let is_same = |fact: &Fact, old: &Fact| (old.whose, old.fence) == (fact.whose, fact.fence);
        let is_known = move |fact: &Fact| self.before.iter().any(|old| is_same(fact, old));
        facts(self.after).filter(move |fact| fact.is_whole && !is_known(fact))
    }
}

impl Monitor {
    pub(super) fn new(clients: usize) -> Self {
        Self { clients: vec![Watched::default(); clients], ..Self::default() }
    }

    /// What a call asks for, before it is judged.
    pub(super) fn asked(&mut self, call: &Call<'_>) -> Result<(), Property> {
        let Some((whose, what, reply)) = call.request else { return Ok(()) };
        if matches!(what, What::Leave | What::Release) {
            self.order.retain(|place| place.whose != whose);
            // A client that gives up a grant has not used it.
            self.clients[whose.0].kept.take_if(|_| *what == What::Leave);
        }
        match reply {
            Reply::Verdict(Verdict::Answer(answer)) => self.supersede(call, whose, what, answer),
            _ => Ok(()),
        }
    }

    /// Remembers what a call did.
    pub(super) fn executed(&mut self, call: &Call<'_>) {
        for fact in call.granted() {
            self.granted = self.granted.max(fact.fence);
            self.order.retain(|place| place.whose != fact.whose);
            let at_least = call.scope.clients[fact.client()].requests[0].at_least;
            let until = NOW + at_least.as_millis() as u64;
            let watched = &mut self.clients[fact.client()];
            watched.revoked = None;
            watched.kept = (!at_least.is_zero()).then_some((until, false));
        }
        let Some((this, what, reply)) = call.request else { return };
        let (client, round) = this;
        let is_this = |waiter: &Waiter| whose(&waiter.token) == this;
        match (what, reply) {
            (_, Reply::Verdict(Verdict::Answer(Answer::Queued { .. }))) => {
                let silent = if call.is_alive { 0 } else { DEAD };
                match self.order.iter_mut().find(|place| place.whose == this) {
                    Some(place) if place.counts(call.scope) => place.silent = silent,
                    // It may have lost its place.
                    Some(_) => {}
                    None => {
                        let is_next = call.scope.clients[client].is_next();
                        let precedes = |place: &&Place| place.precedes(call.scope, is_next);
                        let index = self.order.iter().take_while(precedes).count();
                        self.order.insert(index, Place { whose: this, silent });
                    }
                }
            }
            (_, Reply::Verdict(Verdict::Answer(Answer::Granted { .. }))) => {
                if let Some((_, is_claimed)) = &mut self.clients[client].kept {
                    *is_claimed = true;
                }
            }
            // A server that has lost its data cannot tell a late copy from a waiter.
            (What::Release, _) if self.lost_data && call.after.queue.iter().any(is_this) => {}
            (What::Leave | What::Release, _) => self.clients[client].over |= 1 << round,
            _ => {}
        }
    }

    /// Of the waiting requests with `--supersede`, only the newest may remain. A request counts
    /// from its second call, or from its grant.
    fn supersede(
        &mut self,
        call: &Call<'_>,
        this: (usize, u8),
        what: &What,
        answer: &Answer,
    ) -> Result<(), Property> {
        let (client, round) = this;
        let counts = match answer {
            Answer::Queued { .. } => matches!(what, What::Acquire { arrival: Some(_), .. }),
            Answer::Granted { .. } => call.granted().any(|fact| fact.whose == this),
            _ => false,
        };
        let Self { order, clients, lost_data, .. } = self;
        let mut others = clients.iter_mut().enumerate().filter(|(other, _)| *other != client);
        if matches!(answer, Answer::Superseded(_)) {
            order.retain(|place| place.whose != this);
            // A server that has lost its data may have forgotten the newest.
            if !*lost_data && others.all(|(_, other)| other.arrived.is_none()) {
                return Err(Property::TheNewestWins);
            }
        }
        let is_new = counts && call.scope.clients[client].supersedes();
        if is_new && clients[client].arrived.replace(round) != Some(round) {
            let others = clients.iter_mut().enumerate().filter(|(other, _)| *other != client);
            others.for_each(|(_, other)| other.superseded = other.arrived);
            order.retain(|place| clients[place.whose.0].superseded != Some(place.whose.1));
        }
        Ok(())
    }

    /// Whether a newer request has ended this one.
    pub(super) fn is_superseded(&self, fact: &Fact) -> bool {
        self.clients[fact.client()].superseded == Some(fact.whose.1)
    }

    pub(super) fn ended(&mut self, client: usize) {
        let watched = &mut self.clients[client];
        watched.revoked = None;
        watched.kept.take_if(|(_, is_claimed)| !*is_claimed);
    }

    /// A client dies, so that nobody has to wait for it.
    pub(super) fn died(&mut self, client: usize) {
        let its = self.order.iter_mut().filter(|place| place.client() == client);
        its.for_each(|place| place.silent = DEAD);
    }

    /// All holds are being revoked.
    pub(super) fn all_revoked(&mut self, lock: &Lock) {
        for fact in facts(lock).filter(|fact| fact.deadline >= NOW && fact.is_whole) {
            self.clients[fact.client()].revoked.get_or_insert(0);
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
}
