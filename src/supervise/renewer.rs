//! Keeps a lease alive, on its own thread once one is needed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::machine::Event;
use super::schedule::Schedule;
use crate::error::Error;
use crate::lease::Lease;
use crate::lock::{Key, Token};
use crate::report::plain;
use crate::store::Store;
use crate::system::clock::{Alarm, Instant};
use crate::system::poll::{Want, ready};
use crate::system::thread;
use crate::system::wakeup::Wakeup;

/// The pause before the next attempt to start the thread.
const THREAD_RETRY: Duration = Duration::from_secs(1);

/// The hold under which a command runs.
pub(crate) struct Hold {
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) lease: Lease,
}

/// Opens all that supervision waits for. Call this before the command starts, so that a lack of
/// descriptors is an error while nothing runs.
pub(super) fn prepare() -> Result<(Wakeups, Alarm), Error> {
    let prepared = Wakeups::new().and_then(|wakeups| Ok((wakeups, Alarm::new()?)));
    prepared.map_err(|error| Error::system("cannot prepare for renewals", error))
}

/// How the supervisor and the renewing thread wake each other.
#[derive(Clone)]
pub(super) struct Wakeups {
    /// Wakes the supervisor: there are events.
    arrival: Wakeup,
    /// Wakes the thread: ask the server at once.
    haste: Wakeup,
    /// Wakes the thread: end, and cut short the request under way.
    stop: Wakeup,
}

impl Wakeups {
    fn new() -> io::Result<Self> {
        Ok(Self { arrival: Wakeup::new()?, haste: Wakeup::new()?, stop: Wakeup::new()? })
    }
}

/// The renewer as the supervisor sees it. The thread starts when the first renewal is due: most
/// commands end before that, and none should wait for a thread that it does not need.
pub(super) struct Renewer {
    resting: Option<Renewing>,
    due: Instant,
    thread: Option<JoinHandle<Option<Box<dyn Store>>>>,
    events: Receiver<Event>,
    wakeups: Wakeups,
}

impl Renewer {
    /// Takes over the lease, and the store until it is stopped.
    pub(super) fn new(store: Box<dyn Store>, hold: Hold, wakeups: Wakeups) -> Self {
        let (sender, events) = channel();
        let due = hold.lease.renew_at();
        let renewing = Renewing { store, hold, sender, wakeups: wakeups.clone() };
        Self { resting: Some(renewing), due, thread: None, events, wakeups }
    }

    /// When to call `start_if_due`.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.resting.as_ref().map(|_| self.due)
    }

    /// Starts the thread if it is time. If the system cannot start one now, it may later.
    pub(super) fn start_if_due(&mut self, now: Instant) -> Result<(), Event> {
        let Some(renewing) = self.resting.take_if(|_| now >= self.due) else { return Ok(()) };
        // Handed over only when the thread exists: a thread that does not start would take it
        // along.
        let (hand_over, handed_over) = channel::<Renewing>();
        let run = move || handed_over.recv().ok().map(Renewing::run);
        match thread::start("renewer", run) {
            Ok(thread) => {
                let _ = hand_over.send(renewing);
                self.thread = Some(thread);
                Ok(())
            }
            Err(error) => {
                self.due = now + THREAD_RETRY;
                self.resting = Some(renewing);
                let error = plain(&error);
                Err(Event::Unanswered(format!("cannot start a thread for renewals: {error}")))
            }
        }
    }

    /// Asks the server now, whatever is due.
    pub(super) fn hurry(&mut self) {
        self.due = self.due.min(Instant::now());
        self.wakeups.haste.wake();
    }

    /// Becomes readable when there are events.
    pub(super) fn arrival(&self) -> BorrowedFd<'_> {
        self.wakeups.arrival.as_fd()
    }

    /// What has happened since the last call.
    pub(super) fn events(&self) -> Vec<Event> {
        self.wakeups.arrival.clear();
        self.events.try_iter().collect()
    }

    /// Ends the renewing, cutting short what is under way, and gives the store back.
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

/// What the renewing thread has.
struct Renewing {
    store: Box<dyn Store>,
    hold: Hold,
    sender: Sender<Event>,
    wakeups: Wakeups,
}

impl Renewing {
    fn run(mut self) -> Box<dyn Store> {
        let mut schedule = Schedule::new(self.hold.lease);
        // If the hold does not exist any more, the supervisor ends this thread when it has no more
        // use for the store.
        while !self.stopped_before(schedule.next()) {
            if schedule.next().is_none() {
                continue;
            }
            let sent = Instant::now();
            let Hold { key, token, .. } = &self.hold;
            let stop = Some(self.wakeups.stop.as_fd());
            let answer = self.store.renew(key, token, Some(schedule.ttl()), stop);
            match schedule.answered(sent, answer, Instant::now()) {
                Some(event) => self.tell(event),
                None => break,
            }
        }
        self.store
    }

    /// False when the moment has come, or when the supervisor cannot wait for it.
    fn stopped_before(&self, moment: Option<Instant>) -> bool {
        let Wakeups { stop, haste, .. } = &self.wakeups;
        match ready([(stop.as_fd(), Want::Read), (haste.as_fd(), Want::Read)], moment) {
            Ok([stopped, _]) => {
                haste.clear();
                stopped
            }
            // A renewer that could not be stopped would be worse, so it stops and the lease
            // expires.
            Err(_) => true,
        }
    }

    fn tell(&self, event: Event) {
        // It fails only if the supervisor has ended.
        let _ = self.sender.send(event);
        self.wakeups.arrival.wake();
    }
}
