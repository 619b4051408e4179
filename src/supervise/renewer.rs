//! Renews a lease, on its own thread as soon as one is needed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Error;
use crate::report::plain;
use crate::rules::renewals::Schedule;
use crate::rules::supervisor::Event;
use crate::rules::{Instant, Key, Lease, Token};
use crate::store::Store;
use crate::system::clock::Alarm;
use crate::system::poll::{Want, ready};
use crate::system::thread;
use crate::system::wakeup::Wakeup;

/// How long a command runs before the thread starts, unless a renewal is due sooner. Most commands
/// end before that, and none should wait for a thread that it does not need. Much later, the
/// command could have used up a limit on processes.
const THREAD_DELAY: Duration = Duration::from_millis(100);

/// The pause before the next attempt to start the thread.
const THREAD_RETRY: Duration = Duration::from_millis(100);

/// The hold under which a command runs.
pub(crate) struct RenewableHold {
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) lease: Lease,
}

/// All that supervision waits for, except signals.
pub(crate) struct Descriptors {
    pub(super) wakeups: Wakeups,
    pub(super) alarm: Alarm,
}

impl Descriptors {
    /// Call this before the command starts, so that a lack of descriptors is an error while nothing
    /// runs.
    pub(crate) fn open() -> Result<Self, Error> {
        let opened = Wakeups::new().and_then(|wakeups| Ok(Self { wakeups, alarm: Alarm::new()? }));
        opened.map_err(|error| Error::system("cannot prepare for renewals", error))
    }
}

/// How the supervisor and the renewing thread wake each other.
#[derive(Clone)]
pub(super) struct Wakeups {
    /// Wakes the supervisor, because there are events.
    arrival: Wakeup,
    /// Wakes the thread, which then asks the server at once.
    hurry: Wakeup,
    /// Wakes the thread, which then cancels the request under way and ends.
    stop: Wakeup,
}

impl Wakeups {
    fn new() -> io::Result<Self> {
        Ok(Self { arrival: Wakeup::new()?, hurry: Wakeup::new()?, stop: Wakeup::new()? })
    }
}

/// The renewer as the supervisor sees it.
pub(super) struct Renewer {
    resting: Option<Renewing>,
    /// When to start the thread.
    start_at: Instant,
    /// When the thread must exist, because a renewal is due.
    due: Instant,
    thread: Option<JoinHandle<Option<Box<dyn Store>>>>,
    events: Receiver<Event>,
    wakeups: Wakeups,
}

impl Renewer {
    /// Takes over the lease, and the store until it is stopped.
    pub(super) fn new(store: Box<dyn Store>, hold: RenewableHold, wakeups: Wakeups) -> Self {
        let (sender, events) = channel();
        let due = hold.lease.renew_at();
        let start_at = due.min(Instant::now() + THREAD_DELAY);
        let renewing = Renewing { store, hold, sender, wakeups: wakeups.clone() };
        Self { resting: Some(renewing), start_at, due, thread: None, events, wakeups }
    }

    /// When to call `start_if_due`.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.resting.as_ref().map(|_| self.start_at)
    }

    /// Starts the thread if it is time. If the system cannot start one now, the next call after a
    /// pause tries again.
    ///
    /// # Errors
    ///
    /// The system cannot start the thread, and a renewal is due.
    pub(super) fn start_if_due(&mut self, now: Instant) -> Result<(), Event> {
        let Some(renewing) = self.resting.take_if(|_| now >= self.start_at) else { return Ok(()) };
        // The state moves to the thread only once that exists: if the thread did not start, the
        // state would be lost.
        let (sender, receiver) = channel::<Renewing>();
        let run = move || receiver.recv().ok().map(Renewing::run);
        match thread::start("renewer", run) {
            Ok(thread) => {
                let _ = sender.send(renewing);
                self.thread = Some(thread);
                Ok(())
            }
            Err(error) => {
                self.resting = Some(renewing);
                self.start_at = now + THREAD_RETRY;
                if now < self.due {
                    self.start_at = self.start_at.min(self.due);
                    return Ok(());
                }
                let error = plain(&error);
                Err(Event::Unanswered(format!("cannot start a thread for renewals: {error}")))
            }
        }
    }

    /// Asks the server now, even if no renewal is due.
    pub(super) fn hurry(&mut self) {
        self.due = self.due.min(Instant::now());
        self.start_at = self.start_at.min(self.due);
        self.wakeups.hurry.wake();
    }

    /// Becomes readable when there are events.
    pub(super) fn arrival(&self) -> BorrowedFd<'_> {
        self.wakeups.arrival.as_fd()
    }

    /// The events since the last call.
    pub(super) fn events(&self) -> Vec<Event> {
        self.wakeups.arrival.clear();
        self.events.try_iter().collect()
    }

    /// Stops renewing, cancels the request under way, and returns the store.
    pub(super) fn stop(self) -> Option<Box<dyn Store>> {
        match self.thread {
            Some(thread) => {
                self.wakeups.stop.wake();
                thread.join().ok().flatten()
            }
            None => self.resting.map(|renewing| renewing.store),
        }
    }
}

/// The state of the renewing thread.
struct Renewing {
    store: Box<dyn Store>,
    hold: RenewableHold,
    sender: Sender<Event>,
    wakeups: Wakeups,
}

impl Renewing {
    fn run(mut self) -> Box<dyn Store> {
        let mut schedule = Schedule::new(self.hold.lease);
        // If the hold no longer exists, the supervisor stops this thread once it needs the store.
        while !self.stopped_before(schedule.next()) {
            if schedule.next().is_none() {
                continue;
            }
            let sent = Instant::now();
            let RenewableHold { key, token, .. } = &self.hold;
            let stop = Some(self.wakeups.stop.as_fd().into());
            let answer = self.store.renew(key, token, Some(schedule.ttl()), stop);
            match schedule.answered(sent, answer, Instant::now()) {
                Some(event) => self.send(event),
                None => break,
            }
        }
        self.store
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

    fn send(&self, event: Event) {
        // This fails only if the supervisor has ended.
        let _ = self.sender.send(event);
        self.wakeups.arrival.wake();
    }
}
