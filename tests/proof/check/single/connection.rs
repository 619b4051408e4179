//! What is under way between one client and the server, as `store::server` allows it: in order on
//! one connection, and once more on a new one after it breaks.

use std::time::Duration;

use crate::check::time::now;
use rlock::rules::{
    Delivery, Failure, Instant, Release, Renewal, Seen, Ticket, UserMessage, Verdict,
};

/// A lease that a request sent this long ago could win has expired.
const LONG_AGO: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Acquire { attempt: u64, seen: Option<Seen>, arrival: Option<Ticket> },
    Renew,
    Release,
    Leave,
}

impl What {
    fn is_undo(&self) -> bool {
        matches!(self, Self::Release | Self::Leave)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "most replies are verdicts")]
pub(super) enum Reply {
    Verdict(Verdict),
    Renewal(Renewal),
    Release(Release),
    Left,
    /// By a replica.
    Refused,
}

/// The request whose reply the client awaits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Awaited {
    /// A moment before the client sent it first.
    pub(super) sent: Instant,
    /// What to send once more, on a new connection, if this one breaks. A request that already
    /// travels on a new one is not repeated.
    pub(super) again: Option<What>,
}

/// The present connection of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Connection {
    /// Whether it has carried a reply.
    established: bool,
    /// Whether a reply on it has timed out, so that only an undo may follow.
    undo_only: bool,
    /// What the server has not executed yet. Only the last may be awaited.
    pub(super) requests: Vec<What>,
    pub(super) reply: Option<Reply>,
    pub(super) awaited: Option<Awaited>,
    /// What old connections still carry, in order on each.
    pub(super) late: Vec<Vec<What>>,
}

impl Connection {
    /// The lease that the request may win counts from `sent`.
    pub(super) fn send(&mut self, request: What, sent: Instant) {
        if self.undo_only && !request.is_undo() {
            self.close();
        }
        let again = self.established.then(|| request.clone());
        self.requests.push(request);
        self.awaited = Some(Awaited { sent, again });
    }

    /// Takes the next request for the server, and whether its reply is awaited.
    pub(super) fn next_request(&mut self) -> (What, bool) {
        let request = self.requests.remove(0);
        (request, self.requests.is_empty() && self.awaited.is_some())
    }

    /// Takes the reply, and returns when its request was sent.
    pub(super) fn take_reply(&mut self) -> Option<(Reply, Instant)> {
        let reply = self.reply.take()?;
        let awaited = self.awaited.take()?;
        self.established = true;
        Some((reply, awaited.sent))
    }

    /// The client no longer awaits the reply, and keeps the connection. Returns when it had sent
    /// the request.
    pub(super) fn interrupt(&mut self) -> Option<Instant> {
        self.reply = None;
        self.awaited.take().map(|awaited| awaited.sent)
    }

    /// The client has waited for a reply for too long. It keeps the connection to undo the request
    /// in order, but closes it after an undo. Returns when it had sent the request.
    pub(super) fn time_out(&mut self, is_undo: bool) -> Option<Instant> {
        let sent = self.interrupt();
        if is_undo {
            self.close();
        }
        self.undo_only = !is_undo;
        sent
    }

    pub(super) fn has_timed_out(&self, now: Instant) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| now.since(awaited.sent) > Duration::ZERO)
    }

    /// Ends the connection. What it carries may still arrive.
    pub(super) fn close(&mut self) {
        let Self { requests, mut late, .. } = std::mem::take(self);
        late.push(requests);
        self.late = late;
    }

    pub(super) fn shift(&mut self, back: Duration) {
        if let Some(awaited) = &mut self.awaited {
            awaited.sent = (awaited.sent - back).max(now() - LONG_AGO);
        }
    }

    /// What may still reach the server, and what would be sent once more.
    pub(super) fn each_request(&mut self) -> impl Iterator<Item = &mut What> {
        let again = self.awaited.iter_mut().filter_map(|awaited| awaited.again.as_mut());
        self.requests.iter_mut().chain(self.late.iter_mut().flatten()).chain(again)
    }

    /// How many messages are under way.
    pub(super) fn load(&self) -> u8 {
        self.requests.len() as u8 + u8::from(self.reply.is_some())
    }
}

pub(super) fn unreachable(delivery: Delivery) -> Failure {
    Failure::unreachable(UserMessage::new("away"), delivery)
}
