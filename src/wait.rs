//! From a request to a lease: asking, waiting in line, and giving up properly.

use std::time::Duration;

use crate::clock::Instant;
use crate::config::Patience;
use crate::duration::show;
use crate::error::{Error, Waited};
use crate::lease::Lease;
use crate::lock::{Fence, View};
use crate::poll::{Want, ready};
use crate::report::Report;
use crate::signals::Signals;
use crate::store::{Answer, Failure, Request, Store};

/// A waiter is heard of this often at least; more often if it asks for a short lease, since one
/// who wants that wants to know early.
const HEARTBEAT_AT_MOST: Duration = Duration::from_secs(10);

/// The shortest and the longest time between two attempts to get back to a lost server.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A lock that was won.
pub(crate) struct Won {
    pub(crate) lease: Lease,
    pub(crate) fence: Fence,
}

/// How often a waiter for such a lease tells that it is alive.
pub(crate) fn heartbeat(ttl: Duration) -> Duration {
    (ttl / 3).min(HEARTBEAT_AT_MOST)
}

/// Asks for a lock until it is granted, the patience is over, or a signal comes. Whatever the
/// reason for failing, nothing is left behind as far as the server can still be told.
pub(crate) fn acquire(
    store: &mut dyn Store,
    request: &Request,
    patience: Patience,
    conflict_exit_code: u8,
    signals: &mut Signals,
    report: &Report,
) -> Result<Won, Error> {
    let started = Instant::now();
    let until = match patience {
        Patience::For(duration) => Some(started + duration),
        Patience::None | Patience::Forever => None,
    };
    let place = Place::None;
    let mut wait =
        Wait { store, request, signals, report, started, until, conflict_exit_code, place };
    wait.until_won()
}

struct Wait<'a> {
    store: &'a mut dyn Store,
    request: &'a Request,
    signals: &'a mut Signals,
    report: &'a Report,
    started: Instant,
    until: Option<Instant>,
    conflict_exit_code: u8,
    place: Place,
}

/// Where we stand with the server.
#[derive(Clone, Copy)]
enum Place {
    /// It has not answered yet.
    None,
    InLine,
    /// In line, as far as we know: the server has not answered since then.
    Lost {
        since: Instant,
        back_off: Duration,
    },
}

impl Wait<'_> {
    fn until_won(&mut self) -> Result<Won, Error> {
        loop {
            match self.ask() {
                Ok((sent, Answer::Granted { fence })) => {
                    if let Some(won) = self.won(sent, fence) {
                        return Ok(won);
                    }
                }
                Ok((_, Answer::Busy(view))) => return Err(self.busy(view, Waited::NotAtAll)),
                Ok((_, Answer::Queued { view, position, sleep })) => {
                    self.stand_in_line(view, position, sleep)?;
                }
                Err(failure) => self.ride_out(failure)?,
            }
        }
    }

    /// Sends the request. If its reply is lost it is sent once more, on a new connection: it is the
    /// same request, and a lock that was granted should not be left unused for its TTL.
    fn ask(&mut self) -> Result<(Instant, Answer), Failure> {
        let mut sent = Instant::now();
        let mut answer = self.store.acquire(self.request, Some(self.signals.arrival()));
        if let Err(failure @ Failure::Unreachable { sent: true, .. }) = &answer {
            self.report.detail(format_args!("{failure}; asking again"));
            sent = Instant::now();
            answer = self.store.acquire(self.request, Some(self.signals.arrival()));
        }
        let answer = answer?;
        if let Place::Lost { since, .. } = self.place {
            let away = show(Instant::now().since(since));
            self.report.note(format_args!("the server is back after {away}"));
            self.place = Place::InLine;
        }
        Ok((sent, answer))
    }

    /// A grant counts only while its lease does: an answer may have been long under way.
    fn won(&self, sent: Instant, fence: Fence) -> Option<Won> {
        let now = Instant::now();
        let lease = Lease::won(sent, self.request.ttl);
        if now >= lease.deadline() {
            self.report.detail("granted too late to be of use; asking again");
            return None;
        }
        let waited = show(now.since(self.started));
        self.report.detail(format_args!("granted after {waited}, fence {fence}"));
        Some(Won { lease, fence })
    }

    fn stand_in_line(&mut self, view: View, place: u64, sleep: Duration) -> Result<(), Error> {
        if matches!(self.place, Place::None) {
            self.report.note(format_args!("waiting in place {place}: {view}"));
            self.place = Place::InLine;
        }
        let now = Instant::now();
        let left = self.until.map_or(Duration::MAX, |until| until.since(now));
        if left.is_zero() {
            // The answer to the farewell is the newest there is.
            let view = self.leave().unwrap_or(view);
            return Err(self.busy(view, Waited::For(now.since(self.started))));
        }
        let sleep = sleep.min(left);
        self.report.detail(format_args!("in place {place}, asleep for {} at most", show(sleep)));
        match self.store.sleep(self.request, sleep, Some(self.signals.arrival())) {
            Ok(()) => Ok(()),
            Err(failure) => self.ride_out(failure),
        }
    }

    /// `Ok` if it is worth asking again. Somebody who is in line keeps at it while there is time:
    /// the place is kept for a while, and asking again is the same request.
    fn ride_out(&mut self, failure: Failure) -> Result<(), Error> {
        let now = Instant::now();
        let has_time = self.until.is_none_or(|until| now < until);
        let (since, back_off) = match (&failure, self.place) {
            (Failure::Interrupted, _) => return self.stop_if_told(),
            (Failure::Unreachable { .. } | Failure::Unavailable(_), Place::InLine) if has_time => {
                self.report.note(format_args!("{failure}; still waiting, trying again"));
                (now, BACK_OFF.0)
            }
            (
                Failure::Unreachable { .. } | Failure::Unavailable(_),
                Place::Lost { since, back_off },
            ) if has_time => (since, (back_off * 2).min(BACK_OFF.1)),
            (_, place) => {
                if failure.maybe_executed() || !matches!(place, Place::None) {
                    self.leave();
                }
                return Err(failure.into());
            }
        };
        self.place = Place::Lost { since, back_off };
        let again = self.until.map_or(now + back_off, |until| until.min(now + back_off));
        let arrival = (self.signals.arrival(), Want::Read);
        let [arrived] = ready([arrival], Some(again)).map_err(anyhow::Error::from)?;
        if arrived { self.stop_if_told() } else { Ok(()) }
    }

    fn stop_if_told(&mut self) -> Result<(), Error> {
        match self.signals.pending().first() {
            None => Ok(()),
            Some(&signal) => {
                self.leave();
                Err(Error::Stopped(signal))
            }
        }
    }

    /// Takes the request back. What cannot be told to the server lapses there by itself.
    fn leave(&mut self) -> Option<View> {
        match self.store.leave(self.request) {
            Ok(view) => Some(view),
            Err(failure) => {
                self.report.detail(format_args!("could not take the request back: {failure}"));
                None
            }
        }
    }

    fn busy(&self, view: View, waited: Waited) -> Error {
        Error::Busy { view, waited, status: self.conflict_exit_code }
    }
}
