//! One form for all states that behave the same from now on: fencing tokens and attempts only have
//! an order, and what is only shown is blank.

use std::collections::BTreeSet;
use std::time::Duration;

use super::client::Phase;
use super::connection::{Reply, Sent, What};
use super::lock;
use super::scope::whose;
use super::time::{NOW, now};
use super::world::World;
use rlock::rules::{
    Answer, Fence, HoldState, Holder, Kind, Renewal, ServerTime, State, Verdict, View,
};

impl World {
    pub(super) fn make_canonical(&mut self) {
        self.late.retain(|requests| !requests.is_empty());
        let Self { lock, late, clients, .. } = self;
        lock::make_canonical(lock, NOW, |id| {
            let (client, round, _) = whose(id);
            let is_of = |sent: &Sent| (usize::from(sent.client), sent.round) == (client, round);
            let is_present = clients[client].round == round && clients[client].is_at_work();
            is_present || late.iter().flatten().any(is_of)
        });
        for client in &mut self.clients {
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
        self.rank_fences();
        self.rank_attempts();
        self.rank_tickets();
        self.rank_arrivals();
    }

    fn rank_fences(&mut self) {
        let mut all = BTreeSet::new();
        self.each_fence(&mut |fence| {
            all.insert(*fence);
        });
        all.remove(&0);
        self.each_fence(&mut |fence| {
            if *fence > 0 {
                *fence = all.range(..=*fence).count() as u64;
            }
        });
    }

    fn each_fence(&mut self, change: &mut dyn FnMut(&mut u64)) {
        lock::each_fence(&mut self.lock, change);
        self.monitor.each_fence(change);
        for client in &mut self.clients {
            if let Phase::Waiting(waiter, pending) = &mut client.phase {
                for holder in
                    waiter.seen.as_mut().into_iter().flat_map(|(_, view)| &mut view.holders)
                {
                    change(&mut holder.fence.0);
                }
                if let super::client::Pending::Answer(seen, _) = pending {
                    seen.iter_mut().for_each(|seen| change(&mut seen.holder.fence.0));
                }
            }
            match &mut client.connection.reply {
                Some(Reply::Verdict(Verdict::Answer(Answer::Granted { fence, .. }))) => {
                    change(&mut fence.0);
                }
                Some(Reply::Verdict(Verdict::Answer(
                    Answer::Queued { view, .. } | Answer::Busy(view),
                ))) => view.holders.iter_mut().for_each(|holder| change(&mut holder.fence.0)),
                _ => {}
            }
        }
        self.each_request(&mut |request| {
            if let What::Acquire { seen, .. } = &mut request.what {
                seen.iter_mut().for_each(|seen| change(&mut seen.holder.fence.0));
            }
        });
    }

    /// The server counts on from the last ticket in its queue, which is in order.
    fn rank_tickets(&mut self) {
        let queue = &mut self.lock.queue;
        for (ticket, waiter) in (1..).zip(queue.iter_mut()) {
            waiter.ticket = ticket;
        }
        self.lock.ticket = queue.len() as u64;
    }

    /// Of the tickets of requests that supersede, only the order matters.
    fn rank_arrivals(&mut self) {
        let mut all = BTreeSet::new();
        self.each_arrival(&mut |ticket| {
            all.insert(*ticket);
        });
        self.each_arrival(&mut |ticket| *ticket = all.range(..=*ticket).count() as u64);
    }

    fn each_arrival(&mut self, change: &mut dyn FnMut(&mut u64)) {
        self.lock.newest.iter_mut().for_each(|newest| change(&mut newest.ticket));
        for client in &mut self.clients {
            if let Phase::Waiting(waiter, pending) = &mut client.phase {
                waiter.arrival.iter_mut().for_each(|ticket| change(&mut ticket.0));
                if let super::client::Pending::Answer(_, Some(ticket)) = pending {
                    change(&mut ticket.0);
                }
            }
            if let Some(Reply::Verdict(Verdict::Answer(Answer::Queued {
                arrival: Some(ticket),
                ..
            }))) = &mut client.connection.reply
            {
                change(&mut ticket.0);
            }
        }
        self.each_request(&mut |request| {
            if let What::Acquire { arrival: Some(ticket), .. } = &mut request.what {
                change(&mut ticket.0);
            }
        });
    }

    fn rank_attempts(&mut self) {
        let mut all = BTreeSet::new();
        self.each_attempt(&mut |client, round, attempt| {
            all.insert((client, round, *attempt));
        });
        let rank = |client, round, attempt: u64| {
            all.range((client, round, 0)..=(client, round, attempt)).count() as u64
        };
        self.each_attempt(&mut |client, round, attempt| *attempt = rank(client, round, *attempt));
        for (index, client) in self.clients.iter_mut().enumerate() {
            client.attempt = rank(index, client.round, client.attempt);
        }
    }

    fn each_attempt(&mut self, change: &mut dyn FnMut(usize, u8, &mut u64)) {
        lock::each_attempt(&mut self.lock, &mut |token, attempt| {
            let (client, round, is_whole) = whose(token);
            if is_whole {
                change(client, round, attempt);
            }
        });
        self.each_request(&mut |request| {
            if let What::Acquire { attempt, .. } = &mut request.what {
                change(usize::from(request.client), request.round, attempt);
            }
        });
    }

    /// Calls `change` with each request that is under way, or may be sent once more.
    fn each_request(&mut self, change: &mut dyn FnMut(&mut Sent)) {
        self.late.iter_mut().flatten().for_each(&mut *change);
        for client in &mut self.clients {
            client.connection.requests.iter_mut().for_each(&mut *change);
            client.connection.repetition().into_iter().for_each(&mut *change);
        }
    }
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
