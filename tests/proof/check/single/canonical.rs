//! One form for all states that behave the same from now on: fencing tokens and attempts only have
//! an order, and what is only shown is blank.

use std::collections::BTreeSet;
use std::time::Duration;

use super::client::{Pending, Phase};
use super::connection::{Reply, Sent, What};
use super::world::World;
use crate::check::lock::{self, Number};
use crate::check::scope::whose;
use crate::check::time::{NOW, now};
use rlock::rules::{
    Answer, Fence, HoldState, Holder, Kind, Renewal, Seen, ServerTime, State, Ticket, Verdict, View,
};

impl World {
    /// Blanks what is only shown, and gives times that no longer matter one value.
    pub(super) fn settle_times(&mut self) {
        let Self { lock, clients, .. } = self;
        for client in &mut *clients {
            client.connection.late.retain(|requests| !requests.is_empty());
        }
        lock::make_canonical(lock, NOW, |id| {
            let (client, round) = whose(id);
            let client = &clients[client];
            let mut late = client.connection.late.iter().flatten();
            client.round == round && client.is_at_work() || late.any(|sent| sent.round == round)
        });
        // The server counts on from the last ticket in its queue, which is in order.
        for (ticket, waiter) in (1..).zip(lock.queue.iter_mut()) {
            waiter.ticket = ticket;
        }
        lock.ticket = lock.queue.len() as u64;
        for client in clients {
            if !client.holds() {
                client.slot = None;
            }
            if let Some(reply) = &mut client.connection.reply {
                settle_reply(reply);
            }
            if let Phase::Waiting(waiter, _) = &mut client.phase
                && let Some((then, view)) = waiter.seen.as_mut()
            {
                settle_view(view, now().since(*then));
                view.state = State::Held;
                *then = now();
            }
        }
    }

    /// Keeps only the order of numbers of one kind.
    pub(super) fn rank_numbers(&mut self) {
        let mut all = BTreeSet::new();
        self.each_number(&mut |kind, number| {
            if *number > 0 {
                all.insert((kind, *number));
            }
        });
        let rank = |kind, number| all.range((kind, 0)..=(kind, number)).count() as u64;
        self.each_number(&mut |kind, number| *number = rank(kind, *number));
        for (index, client) in self.clients.iter_mut().enumerate() {
            client.attempt = rank(Number::Attempt(index, client.round), client.attempt);
        }
    }

    fn each_number(&mut self, change: &mut dyn FnMut(Number, &mut u64)) {
        let Self { lock, clients, monitor, .. } = self;
        lock::each_number(lock, change);
        change(Number::Fence, &mut monitor.granted);
        for (index, client) in clients.iter_mut().enumerate() {
            if let Phase::Waiting(waiter, pending) = &mut client.phase {
                waiter.seen.iter_mut().for_each(|(_, view)| each_holder(view, change));
                waiter.arrival.iter_mut().for_each(|it| change(Number::Arrival, &mut it.0));
                if let Pending::Answer(seen, arrival) = pending {
                    each_seen(seen, arrival, change);
                }
            }
            if let Some(Reply::Verdict(Verdict::Answer(answer))) = &mut client.connection.reply {
                match answer {
                    Answer::Granted { fence, .. } => change(Number::Fence, &mut fence.0),
                    Answer::Queued { view, arrival, .. } => {
                        each_holder(view, change);
                        arrival.iter_mut().for_each(|it| change(Number::Arrival, &mut it.0));
                    }
                    Answer::Busy(view) => each_holder(view, change),
                    _ => {}
                }
            }
            for Sent { round, what } in client.connection.each_request() {
                if let What::Acquire { attempt, seen, arrival } = what {
                    change(Number::Attempt(index, *round), attempt);
                    each_seen(seen, arrival, change);
                }
            }
        }
    }
}

fn each_holder(view: &mut View, change: &mut dyn FnMut(Number, &mut u64)) {
    view.holders.iter_mut().for_each(|holder| change(Number::Fence, &mut holder.fence.0));
}

/// Each number of a request that names these holders and this ticket.
fn each_seen(
    seen: &mut [Seen],
    arrival: &mut Option<Ticket>,
    change: &mut dyn FnMut(Number, &mut u64),
) {
    seen.iter_mut().for_each(|seen| change(Number::Fence, &mut seen.holder.fence.0));
    arrival.iter_mut().for_each(|it| change(Number::Arrival, &mut it.0));
}

fn settle_reply(reply: &mut Reply) {
    match reply {
        Reply::Verdict(Verdict::Answer(Answer::Queued { view, .. } | Answer::Busy(view))) => {
            settle_view(view, Duration::ZERO);
        }
        Reply::Renewal(Renewal::Renewed { fence, left, .. }) => {
            (*fence, *left) = (Fence(0), Duration::ZERO);
        }
        _ => {}
    }
}

/// Keeps what a waiter may do with a view: remind a server of the holders. `ago` is the age of the
/// view on the waiter's clock.
fn settle_view(view: &mut View, ago: Duration) {
    let unlisted = view.holder_count > view.holders.len() as u64;
    let now = view.now;
    view.holders.retain_mut(|holder| {
        let renews = matches!(
            (holder.state, holder.client.kind),
            (HoldState::Held, Kind::Exec | Kind::WhilePid)
        );
        let left = match renews {
            true => holder.deadline.since(holder.renewed),
            false => holder.deadline.since(now).saturating_sub(ago),
        };
        let Holder { renewed, deadline, acquired, .. } = holder;
        (*renewed, *deadline) = (ServerTime(NOW), ServerTime(NOW) + left);
        (*acquired, holder.waited, holder.slot) = (ServerTime(0), None, None);
        !left.is_zero()
    });
    view.now = ServerTime(NOW);
    view.holder_count = view.holders.len() as u64 + u64::from(unlisted);
    (view.mode, view.ttl, view.fence, view.waiter_count) = (None, None, None, 0);
    view.history.clear();
    if view.holders.is_empty() {
        view.generation.clear();
        view.holder_count = 0;
    }
}
