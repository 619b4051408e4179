//! What the properties need to know about earlier events.

use std::time::Duration;

use super::connection::{Reply, What};
use crate::check::property::{Property, is_in_use};
use crate::check::scope::{Scope, is_whole, whose};
use crate::check::time::TICK_MILLIS;
use rlock::rules::model::Lock;
use rlock::rules::model::lock::{CLAIM_WINDOW, Hold};
use rlock::rules::{Answer, Verdict};

/// A waiter that has been silent for this many ticks counts as dead: no client has to wait for it.
const DEAD: u8 = 20;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Monitor {
    /// The waiters in the order in which the server first heard of them.
    pub(super) order: Vec<Place>,
    /// The largest fencing token granted.
    pub(super) granted: u64,
    /// The requests with `--supersede`, in the order in which they arrived.
    arrivals: Vec<usize>,
    pub(super) clients: Vec<Watched>,
    /// For how many ticks the lock has been idle beside a living waiter.
    pub(super) idle: u8,
    /// For how many ticks commands have run that exclude each other.
    pub(super) overlap: u8,
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
    /// For how many ticks the server has not heard of it.
    silent: u8,
}

impl Place {
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
    /// Whether its token is over.
    pub(super) is_over: bool,
    /// Until when `--at-least` keeps the lock for it, in milliseconds, and whether it has claimed
    /// it.
    pub(super) kept: Option<(u64, bool)>,
}

/// The client that has a hold.
pub(super) fn holder(hold: &Hold) -> usize {
    whose(&hold.token)
}

/// What one call has done to the lock.
pub(super) struct Call<'a> {
    pub(super) scope: &'a Scope,
    /// Who called, what it asked, and the reply; `None` for an operator.
    pub(super) request: Option<(usize, &'a What, &'a Reply)>,
    /// Whether the caller is still alive.
    pub(super) is_alive: bool,
    pub(super) before: &'a [Hold],
    pub(super) after: &'a Lock,
    /// What the server's clock shows.
    pub(super) now: u64,
}

impl Call<'_> {
    pub(super) fn granted(&self) -> impl Iterator<Item = &Hold> {
        let is_known = |hold: &Hold| {
            let mut before = self.before.iter();
            before.any(|old| (&old.token, old.fence) == (&hold.token, hold.fence))
        };
        self.after.holds.iter().filter(move |hold| is_whole(&hold.token) && !is_known(hold))
    }
}

impl Monitor {
    pub(super) fn new(clients: usize) -> Self {
        Self { clients: vec![Watched::default(); clients], ..Self::default() }
    }

    /// What a call asks for, before it is judged.
    pub(super) fn asked(&mut self, call: &Call<'_>) -> Result<(), Property> {
        let Some((client, what, reply)) = call.request else { return Ok(()) };
        if matches!(what, What::Leave | What::Release) && !self.is_taken_for_a_waiter(call, client)
        {
            self.order.retain(|place| place.client != client);
            // A client that gives up a grant has not used it.
            self.clients[client].kept.take_if(|_| *what == What::Leave);
        }
        match reply {
            Reply::Verdict(Verdict::Answer(answer)) => self.supersede(call, client, what, answer),
            _ => Ok(()),
        }
    }

    /// Remembers what a call did.
    pub(super) fn executed(&mut self, call: &Call<'_>) {
        if call.granted().next().is_some() {
            self.idle = 0;
        }
        for hold in call.granted() {
            self.granted = self.granted.max(hold.fence);
            self.order.retain(|place| place.client != holder(hold));
            let at_least = call.scope.clients[holder(hold)].request.at_least;
            let until = call.now + at_least.as_millis() as u64;
            let watched = &mut self.clients[holder(hold)];
            watched.revoked = None;
            watched.kept = (!at_least.is_zero()).then_some((until, false));
        }
        let Some((client, what, reply)) = call.request else { return };
        match (what, reply) {
            (_, Reply::Verdict(Verdict::Answer(Answer::Queued { .. }))) => {
                let silent = if call.is_alive { 0 } else { DEAD };
                match self.order.iter_mut().find(|place| place.client == client) {
                    Some(place) if place.counts(call.scope) => place.silent = silent,
                    // It may have lost its place.
                    Some(_) => {}
                    None => {
                        let is_next = call.scope.clients[client].is_next();
                        let precedes = |place: &&Place| place.precedes(call.scope, is_next);
                        let index = self.order.iter().take_while(precedes).count();
                        self.order.insert(index, Place { client, silent });
                    }
                }
            }
            (_, Reply::Verdict(Verdict::Answer(Answer::Granted { .. }))) => {
                if let Some((_, is_claimed)) = &mut self.clients[client].kept {
                    *is_claimed = true;
                }
            }
            (What::Release, _) if self.is_taken_for_a_waiter(call, client) => {}
            (What::Leave | What::Release, _) => self.clients[client].is_over = true,
            _ => {}
        }
    }

    /// A server that has lost its data cannot tell a late copy from a waiter. Nor does one that went
    /// back to a time when the client waited know that it has had the lock since.
    fn is_taken_for_a_waiter(&self, call: &Call<'_>, client: usize) -> bool {
        let token = &call.scope.clients[client].request.token;
        let is_release = matches!(call.request, Some((_, What::Release, _)));
        is_release && self.lost_data && is_in_use(token, call.after, call.now)
    }

    /// Of the waiting requests with `--supersede`, only the newest may remain. A request counts
    /// from its second call, or from its grant.
    fn supersede(
        &mut self,
        call: &Call<'_>,
        client: usize,
        what: &What,
        answer: &Answer,
    ) -> Result<(), Property> {
        let counts = match answer {
            Answer::Queued { .. } => matches!(what, What::Acquire { arrival: Some(_), .. }),
            Answer::Granted { .. } => call.granted().any(|hold| holder(hold) == client),
            _ => false,
        };
        let Self { order, arrivals, lost_data, .. } = self;
        if matches!(answer, Answer::Superseded(_)) {
            order.retain(|place| place.client != client);
            // A server that has lost its data may have forgotten the newest.
            if !*lost_data && arrivals.iter().all(|other| *other == client) {
                return Err(Property::TheNewestWins);
            }
        }
        if counts && call.scope.clients[client].supersedes() && !arrivals.contains(&client) {
            order.retain(|place| !arrivals.contains(&place.client));
            arrivals.push(client);
        }
        Ok(())
    }

    /// Whether a newer request has ended this one.
    pub(super) fn is_superseded(&self, hold: &Hold) -> bool {
        self.arrivals.iter().rev().skip(1).any(|old| *old == holder(hold))
    }

    pub(super) fn ended(&mut self, client: usize) {
        let watched = &mut self.clients[client];
        watched.revoked = None;
        watched.kept.take_if(|(_, is_claimed)| !*is_claimed);
    }

    /// The server believes that it has not heard of anybody for a second more.
    pub(super) fn clock_set_ahead(&mut self) {
        self.order.iter_mut().for_each(|place| place.silent += 1);
    }

    /// A client dies, so that nobody has to wait for it.
    pub(super) fn died(&mut self, client: usize) {
        let its = self.order.iter_mut().filter(|place| place.client == client);
        its.for_each(|place| place.silent = DEAD);
    }

    /// All holds are being revoked.
    pub(super) fn all_revoked(&mut self, lock: &Lock, now: u64) {
        let is_live = |hold: &&Hold| hold.deadline >= now && is_whole(&hold.token);
        for hold in lock.holds.iter().filter(is_live) {
            self.clients[holder(hold)].revoked.get_or_insert(0);
        }
        self.clients.iter_mut().for_each(|watched| watched.kept = None);
    }

    pub(super) fn forgotten(&mut self, told: bool) {
        self.order.clear();
        self.arrivals.clear();
        self.lost_data = true;
        for watched in &mut self.clients {
            *watched = Watched { revoked: watched.revoked, ..Watched::default() };
        }
        if !told {
            self.forgot = Some(0);
        }
    }

    /// The server has these waiters after it went back.
    pub(super) fn went_back(&mut self, lock: &Lock, scope: &Scope, now: u64) {
        let places = lock.queue.iter().map(|waiter| {
            let client = whose(&waiter.token);
            let heartbeat = scope.ttl(client).as_millis() as u64 / 3;
            let presumed = 2 * heartbeat + CLAIM_WINDOW;
            let silent = (now + presumed).saturating_sub(waiter.alive).div_ceil(TICK_MILLIS);
            Place { client, silent: DEAD.min(silent as u8) }
        });
        self.order = places.collect();
    }

    pub(super) fn tick(&mut self, now: u64) {
        for place in &mut self.order {
            place.silent = (place.silent + 1).min(DEAD);
        }
        for watched in &mut self.clients {
            watched.revoked = watched.revoked.map(|ticks| (ticks + 1).min(20));
            watched.kept = watched.kept.map(|(until, claimed)| (until - TICK_MILLIS, claimed));
            watched.kept.take_if(|(until, _)| *until < now);
        }
        self.forgot = self.forgot.map(|ticks| ticks + 1).filter(|ticks| *ticks < 10);
    }
}
