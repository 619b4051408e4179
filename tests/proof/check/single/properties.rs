//! What must never happen: one function for each promise.

use std::time::Duration;

use super::client::Client;
use super::monitor::{Call, Monitor, holder};
use super::world::World;
use crate::check::property::{
    Property, is_in_use, is_something_left, rivals_run, slots_are_mixed_up,
};
use crate::check::scope::is_whole;
use crate::check::search::Play;
use crate::check::time::TICK_MILLIS;
use rlock::rules::LossPolicy;
use rlock::rules::model::lock::CLAIM_WINDOW;

/// The one that a call breaks.
fn broken_by(monitor: &Monitor, call: &Call<'_>) -> Option<Property> {
    Property::first([
        (Property::FencesGrow, fence_does_not_grow(monitor, call)),
        (Property::TheNewestWins, call.granted().any(|hold| monitor.is_superseded(hold))),
        (Property::FirstComeFirstServed, is_overtaken(monitor, call)),
        (Property::ADeadHoldEndsInTime, lasts_too_long(call)),
        (Property::AtLeastIsKept, is_granted_too_early(monitor, call)),
    ])
}

/// Judges one call, and remembers what it did.
pub(super) fn judge(monitor: &mut Monitor, call: &Call<'_>) -> Result<(), Property> {
    monitor.asked(call)?;
    broken_by(monitor, call).map_or(Ok(()), Err)?;
    monitor.executed(call);
    if is_back(monitor, call) { Err(Property::WhatIsOverStaysOver) } else { Ok(()) }
}

/// The one that a state breaks.
pub(super) fn broken_in(world: &World) -> Option<Property> {
    let (scope, running) = (world.course.scope, running(world));
    let are_mixed_up = slots_are_mixed_up(scope, &running, |client| world.clients[client].slot);
    // If the server's clock was set ahead, a lease may end that much sooner than the command.
    let is_excused = world.monitor.overlap < world.course.used('a');
    Property::first([
        (Property::HoldersExcludeEachOther, !is_excused && do_rivals_run(world)),
        (Property::EachHolderHasItsSlot, !is_excused && are_mixed_up),
        (Property::ARevokedHolderStops, revoked_runs_on(world)),
        (Property::NothingIsLeft, world.is_end() && is_something_left(&world.lock, world.clock)),
    ])
}

pub(super) fn do_rivals_run(world: &World) -> bool {
    rivals_run(world.course.scope, &running(world))
}

/// The clients whose commands run.
///
/// These do not count, as docs/promises.md says: a holder that was paused beyond its lease, one that
/// was revoked with --now, and two holders for up to a third of the TTL and the time to stop after
/// the server lost its data. Each message that was late or lost may cost the old holder a tick more. An old holder that is cut off
/// or paused stops only with its lease.
fn running(world: &World) -> Vec<usize> {
    let grace = |client: usize| match world.is_cut_or_paused() {
        true => world.course.scope.ttl(client),
        false => world.grace(client),
    };
    let clients = world.clients.iter().zip(&world.monitor.clients).enumerate();
    let running = clients.filter(|(_, (client, watched))| {
        let is_revoked_now = watched.revoked.is_some() && world.course.used('w') > 0;
        client.holds() && !client.overslept() && !is_revoked_now
    });
    let running: Vec<usize> = running.map(|(index, _)| index).collect();
    match world.monitor.forgot {
        Some(ticks) if running.iter().all(|&client| millis(ticks) <= grace(client)) => Vec::new(),
        _ => running,
    }
}

/// A command must be told to stop at its next renewal, and end in time. Each message that was late
/// or lost may cost a tick more; a client that is paused or cut off only has to stop with its
/// lease.
fn revoked_runs_on(world: &World) -> bool {
    let is_late =
        |client: usize, ticks: u8| !world.is_cut_or_paused() && millis(ticks) > world.grace(client);
    let clients = world.clients.iter().zip(&world.monitor.clients).enumerate();
    clients
        .filter(|(_, (client, _))| client.holds())
        .any(|(index, (_, watched))| watched.revoked.is_some_and(|ticks| is_late(index, ticks)))
}

fn fence_does_not_grow(monitor: &Monitor, call: &Call<'_>) -> bool {
    let mut last = monitor.granted;
    call.granted().any(|hold| {
        let grows = hold.fence > last;
        last = last.max(hold.fence);
        !grows
    })
}

/// A newcomer was granted the lock before a waiter that is alive. A client that may enter what its
/// owner holds is allowed to overtake.
fn is_overtaken(monitor: &Monitor, call: &Call<'_>) -> bool {
    let granted: Vec<usize> = call.granted().map(holder).collect();
    granted.iter().filter(|client| !call.scope.clients[**client].may_enter()).any(|client| {
        let earlier = monitor.order.iter().take_while(|place| place.client != *client);
        let is_granted = |client| granted.contains(&client);
        let mut earlier = earlier.filter(|place| place.counts(call.scope));
        let is_next = call.scope.clients[*client].is_next();
        earlier.any(|place| !is_granted(place.client) && place.precedes(call.scope, is_next))
    })
}

/// A hold may last for a TTL from its holder's last request, or until `--at-least` ends, and a
/// grant that nobody claims for the claim window. A lock is closed for a TTL at most.
fn lasts_too_long(call: &Call<'_>) -> bool {
    call.after.holds.iter().any(|hold| {
        let old = call.before.iter().find(|old| old.token == hold.token);
        let old = old.map(|old| old.deadline);
        if !is_whole(&hold.token) {
            let ttls = (0..call.scope.clients.len()).map(|client| call.scope.ttl(client));
            let longest = ttls.max().unwrap().as_millis() as u64;
            return Some(hold.deadline) > old.max(Some(call.now + longest));
        }
        let at_least = call.scope.clients[holder(hold)].request.at_least;
        let longest = call.scope.ttl(holder(hold)).max(at_least).as_millis() as u64;
        let is_caller = call.request.is_some_and(|(caller, ..)| caller == holder(hold));
        let limit = match is_caller {
            true => old.max(Some(call.now + longest)),
            false => old.or(Some(call.now + CLAIM_WINDOW)),
        };
        Some(hold.deadline) > limit
    })
}

fn is_granted_too_early(monitor: &Monitor, call: &Call<'_>) -> bool {
    call.granted().map(holder).any(|client| {
        monitor.clients.iter().enumerate().any(|(other, watched)| {
            let is_kept = |(until, is_claimed)| is_claimed && until >= call.now;
            let kept = watched.kept.is_some_and(is_kept);
            other != client && call.scope.exclude_each_other(other, client) && kept
        })
    })
}

/// A token that was released or given up is in use again.
fn is_back(monitor: &Monitor, call: &Call<'_>) -> bool {
    call.scope.clients.iter().zip(&monitor.clients).any(|(terms, watched)| {
        watched.is_over && is_in_use(&terms.request.token, call.after, call.now)
    })
}

impl World {
    /// How long a command may run on without its hold: until the next renewal, and the time that it
    /// then has to end, as the supervisor limits it. It may be a tick longer for each renewal that
    /// was late or lost, also because of a slow clock. The first loss of the server's data does not
    /// count: what it costs is known.
    fn grace(&self, client: usize) -> Duration {
        let ttl = self.course.scope.ttl(client);
        let kill_after = LossPolicy::DEFAULT.kill_after.min(ttl / 3);
        let used = |letter| self.course.used(letter);
        let losses = used('f') + used('t');
        let late = used('d') + used('b') + used('r') + losses.saturating_sub(1);
        ttl / 3 + kill_after + millis(late + self.course.scope.lag())
    }

    /// Whether a client has been cut off from the master or paused so far.
    fn is_cut_or_paused(&self) -> bool {
        self.course.used('n') + self.course.used('p') + self.course.used('y') > 0
    }

    /// A second is about to pass. The lock must not be idle all the time beside a living waiter: a
    /// waiter looks at it when the lease ends, and is told when it becomes the head or is granted
    /// the lock. Only where a waiter died, or a message was lost or late, the heartbeats have to
    /// help. A waiter whose clock is slow does all of it a tick later, and one whose server's clock was
    /// set ahead looks a tick later.
    pub(super) fn watch_idle_lock(&mut self) -> Result<(), Property> {
        let waits = |client: &Client| client.waits() && !client.paused && !client.cut;
        let queued = self.monitor.order.iter().map(|place| place.client);
        let is_unused = self.lock.holds.iter().all(|hold| {
            let is_asleep = |client: &Client| waits(client) && client.load() == 0;
            let sleeps_on_it = is_whole(&hold.token) && is_asleep(&self.clients[holder(hold)]);
            hold.deadline < self.clock || sleeps_on_it
        });
        let granted = self.lock.holds.iter().filter(|it| is_whole(&it.token)).map(holder);
        let idle = is_unused
            && !self.is_foreign()
            && !self.is_replica
            && queued.chain(granted).any(|client| waits(&self.clients[client]))
            && self.clients.iter().all(|client| client.load() == 0);
        self.monitor.idle = if idle { self.monitor.idle + 1 } else { 0 };
        let heartbeat =
            (0..self.clients.len()).map(|client| self.course.scope.ttl(client) / 3).max();
        // The longest pause of a waiter that could not reach the server.
        let is_away = self.course.used('n') + self.course.used('y') > 0;
        let away = millis(if is_away { 2 } else { 0 });
        let bound = match self.monitor.shaken {
            true => heartbeat.unwrap_or_default() + millis(1 + self.course.used('d')) + away,
            false => Duration::ZERO,
        };
        let late = self.course.scope.lag() + self.course.used('a');
        match millis(self.monitor.idle) > bound + millis(late) {
            true => Err(Property::NoLockIsIdleBesideAWaiter),
            false => Ok(()),
        }
    }
}

fn millis(ticks: u8) -> Duration {
    Duration::from_millis(u64::from(ticks) * TICK_MILLIS)
}
