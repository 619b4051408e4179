//! Renews a lease on its own thread.

use std::io;
use std::os::fd::AsFd;

use crate::report::Report;
use crate::rules::renewals::Schedule;
use crate::rules::supervisor::Event;
use crate::rules::{Instant, Key, Lease, Token};
use crate::store::Store;
use crate::system::channel::Sender;
use crate::system::poll::{Want, ready};
use crate::system::wakeup::Wakeup;

/// The hold under which a command runs.
pub(crate) struct RenewableHold {
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) lease: Lease,
}

/// How the supervisor wakes the renewing thread.
#[derive(Clone)]
pub(super) struct Wakeups {
    /// Wakes the thread, which then asks the server at once.
    pub(super) hurry: Wakeup,
    /// Wakes the thread, which then cancels the request under way and ends.
    pub(super) stop: Wakeup,
}

impl Wakeups {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { hurry: Wakeup::new()?, stop: Wakeup::new()? })
    }
}

/// What the renewing thread works with, except the store.
pub(super) struct Renewer {
    pub(super) hold: RenewableHold,
    pub(super) sender: Sender<Event>,
    pub(super) wakeups: Wakeups,
    pub(super) report: Report,
}

impl Renewer {
    /// Renews the lease until the supervisor stops the thread, and returns the store.
    pub(super) fn run(self, mut store: Box<dyn Store>) -> Box<dyn Store> {
        let RenewableHold { key, token, lease } = &self.hold;
        let mut schedule = Schedule::new(*lease);
        // If the hold no longer exists, the supervisor stops this thread once it needs the store.
        while !self.stopped_before(schedule.next()) {
            if schedule.next().is_none() {
                continue;
            }
            let sent = Instant::now();
            let stop = Some(self.wakeups.stop.as_fd().into());
            let answer = store.renew(key, token, Some(schedule.ttl()), stop);
            self.report.diagnostics(store.diagnostics());
            match schedule.answered(sent, answer, Instant::now()) {
                Some(event) => self.sender.send(event),
                None => break,
            }
        }
        store
    }

    /// Whether the supervisor stops the thread before `moment`. Returns false early if the
    /// supervisor wants an answer at once.
    fn stopped_before(&self, moment: Option<Instant>) -> bool {
        let Wakeups { stop, hurry, .. } = &self.wakeups;
        match ready([(stop.as_fd(), Want::Read), (hurry.as_fd(), Want::Read)], moment) {
            Ok([stopped, _]) => {
                hurry.clear();
                stopped
            }
            // A renewer that cannot be stopped would be worse than a lease that expires, so it
            // stops.
            Err(_) => true,
        }
    }
}
