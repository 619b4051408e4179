//! Keeps a lease alive, on a thread of its own once it is needed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::signal::SigSet;

use super::machine::Event;
use crate::back_off::BackOff;
use crate::lease::Lease;
use crate::lock::{Key, Token};
use crate::report::plain;
use crate::store::{Failure, Renewal, Store};
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};

/// Between two attempts while the server does not answer.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(20), Duration::from_secs(1));

/// Until the next attempt to start the thread.
const THREAD_RETRY: Duration = Duration::from_secs(1);

/// What connects the two threads: events one way, haste and an end to everything the other way.
pub(super) struct Channels {
    arrival: UnixStream,
    announce: UnixStream,
    stop: UnixStream,
    stopped: UnixStream,
}

impl Channels {
    pub(super) fn open() -> io::Result<Self> {
        let (arrival, announce) = UnixStream::pair()?;
        // An unread announcement is announcement enough.
        announce.set_nonblocking(true)?;
        arrival.set_nonblocking(true)?;
        let (stop, stopped) = UnixStream::pair()?;
        Ok(Self { arrival, announce, stop, stopped })
    }
}

/// The renewing, seen from the supervisor. The thread starts when the first renewal is due: most
/// commands end before that, and none should wait for a thread it does not need.
pub(super) struct Renewer {
    resting: Option<Renewing>,
    due: Instant,
    thread: Option<JoinHandle<Option<Box<dyn Store>>>>,
    events: Receiver<Event>,
    arrival: UnixStream,
    stop: UnixStream,
}

impl Renewer {
    /// Takes over the lease, and the store until it is stopped.
    pub(super) fn new(
        store: Box<dyn Store>,
        key: Key,
        token: Token,
        lease: Lease,
        channels: Channels,
    ) -> Self {
        let Channels { arrival, announce, stop, stopped } = channels;
        let (sender, events) = channel();
        let renewing = Renewing { store, key, token, lease, sender, announce, stopped };
        let due = lease.renew_at();
        Self { resting: Some(renewing), due, thread: None, events, arrival, stop }
    }

    /// When `start_if_due` wants to be called.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.resting.as_ref().map(|_| self.due)
    }

    /// Starts the thread if it is time. If the system has no thread for us now, it may later.
    pub(super) fn start_if_due(&mut self, now: Instant) -> Result<(), Event> {
        let Some(renewing) = self.resting.take_if(|_| now >= self.due) else { return Ok(()) };
        // Handed over only when the thread is there, so that it is not lost with one that is not.
        let (hand_over, handed_over) = channel::<Renewing>();
        let thread = Builder::new().name("renewer".into()).spawn(move || {
            // They are the main thread's, stops above all.
            let _ = SigSet::all().thread_block();
            handed_over.recv().ok().map(Renewing::run)
        });
        match thread {
            Ok(thread) => {
                let _ = hand_over.send(renewing);
                self.thread = Some(thread);
                Ok(())
            }
            Err(error) => {
                self.due = now + THREAD_RETRY;
                self.resting = Some(renewing);
                let error = plain(&error);
                Err(Event::Unanswered(format!("no thread to renew it with: {error}")))
            }
        }
    }

    /// Asks the server now, whatever is due.
    pub(super) fn hurry(&mut self) {
        self.due = self.due.min(Instant::now());
        // An unread wish is wish enough.
        let _ = io::Write::write(&mut &self.arrival, b"?");
    }

    /// Becomes readable when there are events.
    pub(super) fn arrival(&self) -> BorrowedFd<'_> {
        self.arrival.as_fd()
    }

    /// What has happened since the last call.
    pub(super) fn events(&self) -> Vec<Event> {
        drain(&self.arrival);
        self.events.try_iter().collect()
    }

    /// Ends the renewing, cutting short what is under way, and gives the store back.
    pub(super) fn stop(self) -> Option<Box<dyn Store>> {
        drop(self.stop);
        match self.thread {
            Some(thread) => thread.join().ok().flatten(),
            None => self.resting.map(|renewing| renewing.store),
        }
    }
}

struct Renewing {
    store: Box<dyn Store>,
    key: Key,
    token: Token,
    lease: Lease,
    sender: Sender<Event>,
    announce: UnixStream,
    stopped: UnixStream,
}

impl Renewing {
    fn run(mut self) -> Box<dyn Store> {
        let mut next = self.lease.renew_at();
        let mut back_off = BACK_OFF;
        while !self.stopped_before(Some(next)) {
            let sent = Instant::now();
            let ttl = self.lease.ttl();
            let stopped = Some(self.stopped.as_fd());
            let renewal = self.store.renew(&self.key, &self.token, Some(ttl), stopped);
            for diagnostic in self.store.diagnostics() {
                self.tell(Event::Diagnostic(diagnostic));
            }
            match renewal {
                Ok(Renewal::Renewed { .. }) => {
                    self.lease = Lease::won(sent, ttl);
                    self.tell(Event::Renewed(self.lease));
                    next = self.lease.renew_at();
                    back_off = BACK_OFF;
                }
                Ok(Renewal::NotHeld(why)) => {
                    self.tell(Event::NotHeld(why));
                    // The supervisor hears of our end too, so it is not before it is wanted.
                    while !self.stopped_before(None) {}
                    break;
                }
                Err(Failure::Interrupted { .. }) => break,
                Err(failure) => {
                    self.tell(Event::Unanswered(failure.to_string()));
                    next = Instant::now() + back_off.pause();
                }
            }
        }
        self.store
    }

    /// False when the moment has come, or somebody cannot wait for it.
    fn stopped_before(&self, moment: Option<Instant>) -> bool {
        let wires = [(self.stopped.as_fd(), Want::Read), (self.announce.as_fd(), Want::Read)];
        match ready(wires, moment) {
            Ok([stopped, hurried]) => {
                if hurried {
                    drain(&self.announce);
                }
                stopped
            }
            // Renewing without ever stopping would be worse: stop, and let the lease end.
            Err(_) => true,
        }
    }

    fn tell(&self, event: Event) {
        // If the supervisor is gone there is nobody to tell.
        let _ = self.sender.send(event);
        let _ = io::Write::write(&mut &self.announce, b"!");
    }
}

/// Reads what has come, none of which says more than that it has.
fn drain(mut wire: &UnixStream) {
    let mut read = [0; 64];
    while matches!(io::Read::read(&mut wire, &mut read), Ok(1..)) {}
}
