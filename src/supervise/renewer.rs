//! Renews a lease on its own thread.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::report::Report;
use crate::rules::renewals::Schedule;
use crate::rules::supervisor::Event;
use crate::rules::{Instant, Key, Lease, Token, show};
use crate::store::Store;
use crate::system::channel::Sender;
use crate::system::clock::Alarm;
use crate::system::poll::{NEVER, Want, ready};
use crate::system::wakeup::Wakeup;

/// The hold under which a command runs.
pub(crate) struct RenewableHold {
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) lease: Lease,
    /// How long the first answer took, with the connection.
    pub(crate) connected_in: Duration,
}

/// How the supervisor wakes the renewing thread.
pub(super) struct Wakeups {
    /// Wakes the thread, which then asks the server at once.
    pub(super) hurry: Wakeup,
    /// Makes the thread cancel the request under way and end.
    pub(super) end: Wakeup,
}

impl Wakeups {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { hurry: Wakeup::new()?, end: Wakeup::new()? })
    }
}

/// What the renewing thread works with.
pub(super) struct Renewer {
    /// Locked during a request. Empty before the thread may renew the lease and after the end.
    pub(super) store: Mutex<Option<Box<dyn Store>>>,
    pub(super) hold: RenewableHold,
    /// How long before the end of a lease the command is asked to end.
    pub(super) kill_after: Duration,
    pub(super) sender: Sender<Event>,
    pub(super) wakeups: Wakeups,
    pub(super) report: Report,
}

impl Renewer {
    /// Renews the lease until the supervisor ends the thread or takes the store back.
    pub(super) fn run(&self) {
        let RenewableHold { key, token, lease, connected_in } = &self.hold;
        let mut schedule = Schedule::new(*lease, self.kill_after, *connected_in);
        // Without a descriptor for it, renewals are late after a suspend.
        let alarm = Alarm::new().ok();
        while !self.ended_before(schedule.next, alarm.as_ref()) {
            // The hold is gone, and there is nothing to ask until the end.
            if schedule.next.is_none() {
                continue;
            }
            let mut store = self.store();
            let Some(store) = store.as_mut() else { break };
            let sent = Instant::now();
            self.sender.send_quietly(Event::Asking(sent));
            let interrupt = NEVER.or(self.wakeups.end.as_fd());
            let interrupt = interrupt.leaving_time_for(schedule.last_renewal());
            let answer = store.renew(key, token, Some(schedule.ttl()), interrupt);
            let Some(event) = schedule.answered(sent, answer, Instant::now()) else { break };
            self.sender.send(event.clone());
            self.report.diagnostics(store.diagnostics());
            match event {
                Event::Renewed(lease, _) => {
                    self.report.detail(format_args!("renewed for {}", show(lease.ttl().get())));
                }
                Event::NotRenewed(reason) => {
                    self.report.detail(format_args!("not renewed: {reason}; retrying"));
                }
                _ => {}
            }
        }
    }

    /// The store, once no request is under way. A panic ends the process, so none leaves it locked.
    pub(super) fn store(&self) -> MutexGuard<'_, Option<Box<dyn Store>>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the request under way, and returns the store. An idle thread sleeps on: to wake it
    /// would take longer than the rest of this.
    pub(super) fn take_store(&self) -> Option<Box<dyn Store>> {
        if let Ok(mut idle) = self.store.try_lock() {
            return idle.take();
        }
        self.wakeups.end.wake();
        self.store().take()
    }

    /// Whether the supervisor ends the thread before `moment`. Returns false early if the
    /// supervisor wants an answer at once.
    fn ended_before(&self, moment: Option<Instant>, alarm: Option<&Alarm>) -> bool {
        let (end, hurry) = (self.wakeups.end.as_fd(), &self.wakeups.hurry);
        let alarm = alarm.filter(|alarm| alarm.set(moment).is_ok()).map_or(end, Alarm::as_fd);
        match ready([end, hurry.as_fd(), alarm].map(|it| (it, Want::Read)), moment) {
            Ok([ended, ..]) => {
                hurry.clear();
                ended
            }
            // A thread that cannot be ended would be worse than a lease that expires, so it ends.
            Err(_) => true,
        }
    }
}
