//! One form for all states that behave the same from now on: attempts only have an order, and what is
//! only shown is blank.

use std::time::Duration;

use super::client::Phase;
use super::connection::What;
use super::world::World;
use crate::check::lock;
use crate::check::scope::{Terms, whose};
use crate::check::time::{NOW, now};
use rlock::rules::{HoldKind, HoldState, ServerTime, View};

impl World {
    /// Blanks what is only shown, and gives times that no longer matter one value.
    pub(super) fn settle_times(&mut self) {
        let Self { course, lock, lagging, clients, clock, .. } = self;
        for client in &mut *clients {
            client.connection.late.retain(|requests| !requests.is_empty());
        }
        for lock in lagging.iter_mut().chain([lock]) {
            lock::make_canonical(lock, *clock, |id| {
                let client = &clients[whose(id)];
                client.is_at_work() || !client.connection.late.is_empty()
            });
            // The server counts on from the last ticket in its queue, which is in order. Requests
            // with `--supersede` remember theirs.
            if !course.scope.clients.iter().any(Terms::supersedes) {
                for (ticket, waiter) in (1..).zip(lock.queue.iter_mut()) {
                    waiter.ticket = ticket;
                }
                lock.ticket = lock.queue.len() as u64;
            }
        }
        for client in clients {
            if let Phase::Waiting(waiter, _) = &mut client.phase
                && let Some((then, view)) = waiter.last_view.as_mut()
            {
                settle_view(view, now().since(*then));
                *then = now();
            }
        }
    }

    pub(super) fn renumber_attempts(&mut self) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            let sent = client.connection.each_request().filter_map(|what| match what {
                What::Acquire { attempt, .. } => Some(attempt),
                _ => None,
            });
            let lagging = self.lagging.iter_mut().flat_map(|it| lock::attempts(it, index));
            let sent = sent.chain(lagging);
            client.attempt = lock::renumber_attempts(&mut self.lock, index, sent);
        }
    }
}

/// Keeps what a waiter may do with a view: remind a server of the holders. `ago` is the age of the
/// view on the waiter's clock.
fn settle_view(view: &mut View, ago: Duration) {
    let now = view.now;
    view.holders.retain_mut(|holder| {
        let renews = matches!(
            (holder.state, holder.client.kind),
            (HoldState::Held, HoldKind::Exec | HoldKind::WhilePid)
        );
        let left = match renews {
            true => holder.deadline.since(holder.renewed),
            false => holder.deadline.since(now).saturating_sub(ago),
        };
        (holder.acquired, holder.renewed) = (ServerTime(NOW), ServerTime(NOW));
        holder.deadline = ServerTime(NOW) + left;
        !left.is_zero()
    });
    view.now = ServerTime(NOW);
    (view.mode, view.ttl, view.fence, view.unlisted_waiters) = (None, None, None, 0);
    view.unlisted_holders = view.unlisted_holders.min(1);
}
