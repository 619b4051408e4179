//! What must never happen.

use super::client::{Client, Doing, How, Phase};
use super::server::{Promoted, SERVERS, Server, State, has_agreed_place};
use super::world::World;
use crate::check::property::{
    Property, is_in_use, is_something_left, rivals_run, slots_are_mixed_up,
};
use crate::check::search::Play;
use crate::check::time::TICK_MILLIS;
use rlock::rules::Mode;
use rlock::rules::model::lock::{CLAIM_WINDOW, Mark, QueueEntry};
use rlock::rules::quorum::majority;

/// How many ticks a lock may be idle beside a living waiter once something went wrong: a lease that
/// no client relies on, a call, and a heartbeat, one after another.
const LONGEST_IDLE: u8 = 6;

/// The promise that a state breaks.
pub(super) fn broken_in(world: &World) -> Option<Property> {
    let (scope, running) = (world.course.scope, world.running());
    let are_mixed_up = slots_are_mixed_up(scope, &running, |client| world.clients[client].slot());
    let is_left = |server: &Server| {
        server.state != State::Dead && is_something_left(&server.lock, server.clock)
    };
    Property::first([
        (Property::HoldersExcludeEachOther, rivals_run(scope, &running)),
        (Property::EachHolderHasItsSlot, are_mixed_up),
        (Property::TheNewestWins, not_the_newest(world)),
        (Property::SomebodyWins, nobody_wins(world)),
        (Property::ANominationLapses, a_nomination_lasts(world)),
        (Property::WhatIsOverStaysOver, is_back(world)),
        (Property::NothingIsLeft, world.is_end() && world.servers.iter().any(is_left)),
    ])
}

/// A server keeps two waiters with `--supersede` and agreed tickets, or all such clients have been
/// superseded.
fn not_the_newest(world: &World) -> bool {
    let supersedes = |client: &usize| world.course.scope.clients[*client].supersedes();
    let all: Vec<usize> = (0..world.clients.len()).filter(supersedes).collect();
    let is_ended =
        |client: &usize| matches!(world.clients[*client].phase, Phase::Ended(How::Superseded));
    let stand_together = |server: &Server| {
        let stands = |client: &&usize| has_agreed_place(&server.lock, world.token(**client));
        all.iter().filter(stands).count() > 1
    };
    world.servers.iter().any(stand_together) || !all.is_empty() && all.iter().all(is_ended)
}

/// A client that waits has lost, or all clients have. One may fail only if so many servers may.
fn nobody_wins(world: &World) -> bool {
    let scope = world.course.scope;
    let may_fail = usize::from(scope.budget.of_all("DZAkzfpqmw")) > SERVERS - majority(SERVERS);
    let has_lost = |client: usize| match world.clients[client].phase {
        Phase::Ended(How::Busy | How::Refused) => true,
        Phase::Ended(How::Failed) => !may_fail,
        _ => false,
    };
    let waits = |client: usize| !scope.clients[client].has('n');
    let mut all = 0..world.clients.len();
    all.clone().all(has_lost) || all.any(|client| waits(client) && has_lost(client))
}

/// A nomination lasts longer than the claim window, although the waiter has not asked again. A clock
/// that is set back prolongs it.
fn a_nomination_lasts(world: &World) -> bool {
    let longest = CLAIM_WINDOW + u64::from(world.course.used('e')) * TICK_MILLIS;
    world.servers.iter().any(|Server { lock, clock, .. }| {
        let is_nominated = |waiter: &&QueueEntry| lock.nominated.contains(&waiter.token);
        let mut nominated = lock.queue.iter().filter(is_nominated);
        nominated.any(|waiter| waiter.alive > clock + longest)
    })
}

/// A client has ended, although not by a crash, all that it sent has arrived, and yet its token is in
/// use on a server.
fn is_back(world: &World) -> bool {
    let has_ended = |client: &Client| match client.phase {
        Phase::Ended(how) => how != How::Crashed,
        _ => false,
    };
    let is_kept = |server: &Server, index: usize| {
        let (line, token) =
            (&server.lines[index], &world.course.scope.clients[index].request.token);
        let has_arrived = line.requests.is_empty() && line.late.is_empty();
        // A failover can undo a release.
        let is_undone = server.promoted != Promoted::No;
        let is_used = is_in_use(token, &server.lock, server.clock);
        server.is_up() && has_arrived && is_used && !is_undone
    };
    let mut ended = (0..world.clients.len()).filter(|index| has_ended(&world.clients[*index]));
    ended.any(|index| world.servers.iter().any(|server| is_kept(server, index)))
}

impl World {
    fn mode(&self, client: usize) -> Mode {
        self.course.scope.clients[client].mode
    }

    fn token(&self, client: usize) -> &'static str {
        self.course.scope.clients[client].request.token.as_str()
    }

    /// Which clients have agreed tickets in the queues of a majority: one bit for each.
    pub(super) fn status(&self) -> u8 {
        let stands = |client: &usize| {
            let has_place = |server: &&Server| has_agreed_place(&server.lock, self.token(*client));
            self.servers.iter().filter(has_place).count() >= majority(SERVERS)
        };
        (0..self.clients.len()).filter(stands).map(|client| 1 << client).sum()
    }

    /// A client has been granted the lock.
    pub(super) fn granted(&mut self, client: usize, fence: u64) {
        let asks = |client: usize| &self.course.scope.clients[client];
        let is_older = |other: usize| {
            self.monitor.older[client] >> other & 1 == 1
                && (asks(other).is_next() || !asks(client).is_next())
                && !(asks(other).supersedes() && asks(client).supersedes())
                && !self.is_superseded(other)
                && self.clients[other].is_acquiring()
                && (self.course.scope.exclude_each_other(client, other)
                    || self.is_last_slot(client))
        };
        let overtakes = (0..self.clients.len()).any(is_older);
        let is_alone = self.mode(client) == Mode::Exclusive;
        let monitor = &mut self.monitor;
        let last = if is_alone { monitor.granted } else { monitor.floors[client] };
        // A server that has forgotten its tokens restarts from its clock, which does not move here.
        let remembers = ['f', 'p', 'q', 'm', 'w'].iter().all(|it| self.course.used(*it) == 0);
        if fence <= last && remembers {
            self.course.breaks(Property::FencesGrow);
        } else if overtakes {
            self.course.breaks(Property::FirstComeFirstServed);
        }
        monitor.granted = monitor.granted.max(fence);
        monitor.idle = 0;
    }

    /// Whether any server has ended the request of a client for a newer one.
    fn is_superseded(&self, client: usize) -> bool {
        let token = self.token(client);
        let mut tombstones = self.servers.iter().flat_map(|server| &server.lock.tombstones);
        tombstones.any(|it| matches!(&it.mark, Mark::Ended(of, _) if of == token))
    }

    /// The clients whose commands run.
    fn running(&self) -> Vec<usize> {
        (0..self.clients.len()).filter(|client| self.clients[*client].holds()).collect()
    }

    /// Whether the commands that run keep a client out.
    fn is_full_for(&self, client: usize) -> bool {
        let running = self.running();
        let slots = self.mode(client).slots().map(|slots| slots.get() as usize);
        slots.is_some_and(|slots| running.len() >= slots)
            || running.iter().any(|&other| self.course.scope.exclude_each_other(client, other))
    }

    /// Whether a client takes the last slot.
    fn is_last_slot(&self, client: usize) -> bool {
        let slots = self.mode(client).slots();
        slots.is_some_and(|slots| self.running().len() + 1 >= slots.get() as usize)
    }

    /// A second is about to pass. The lock must not be idle all the time beside a living waiter.
    pub(super) fn watch_idle_lock(&mut self) -> Result<(), Property> {
        let waits = |client: &Client| {
            matches!(client.phase, Phase::Acquiring(_, _, Doing::Attempt(_) | Doing::Sleep(_)))
        };
        let frozen = self.servers.iter().any(|server| server.state == State::Frozen);
        let may_join = |index: usize| !waits(&self.clients[index]) || !self.is_full_for(index);
        let is_idle = self.clients.iter().any(waits)
            && (0..self.clients.len()).all(may_join)
            && self.under_way() == 0
            && (0..self.clients.len()).all(|index| !self.is_in_a_hurry(index));
        let up = self.servers.iter().filter(|server| server.is_up()).count();
        self.monitor.idle =
            if is_idle && up >= majority(SERVERS) { self.monitor.idle + 1 } else { 0 };
        let is_shaken = self.course.left != self.course.scope.budget;
        let bound = if is_shaken || frozen { LONGEST_IDLE } else { 0 };
        match self.monitor.idle > bound {
            true => Err(Property::NoLockIsIdleBesideAWaiter),
            false => Ok(()),
        }
    }
}
