//! From a request to a lease: asking for a lock, waiting in the queue, and giving up cleanly.

mod live;

use std::time::Duration;

use anyhow::Context;
use live::{Live, WaitStatus};

use crate::duration::show;
use crate::error::{Error, Waited};
use crate::lease::Lease;
use crate::lock::view::{HoldState, State, View};
use crate::lock::{Fence, Kind, Token};
use crate::policy::WaitLimit;
use crate::report::{Fault, Report};
use crate::store::{Answer, Failure, Fate, Request, Seen, Store};
use crate::system::back_off::BackOff;
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};
use crate::system::signals::Signals;

/// The longest heartbeat interval. A short TTL shortens it, because the waiter wants early notice.
const HEARTBEAT_AT_MOST: Duration = Duration::from_secs(10);

/// Between two attempts to reach a lost server.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(100), Duration::from_secs(2));

/// Between the first and the second message in a log about a wait. Each later interval is three times
/// as long.
const FIRST_REMINDER: Duration = Duration::from_secs(60);

/// A lock that was granted.
pub(crate) struct Acquired {
    /// May differ from the request's token: see `Store::has_queue`.
    pub(crate) token: Token,
    pub(crate) lease: Lease,
    pub(crate) fence: Fence,
}

/// How often a waiter for a lease of this length tells the server that it is alive.
pub(crate) fn heartbeat(ttl: Duration) -> Duration {
    (ttl / 3).min(HEARTBEAT_AT_MOST)
}

/// Asks for a lock until the server grants it, the wait limit ends, or a signal comes. On failure it
/// takes the request back, as far as the server can still be reached.
pub(crate) fn acquire(
    store: &mut dyn Store,
    request: &Request,
    wait_limit: WaitLimit,
    signals: &mut Signals,
    report: &Report,
) -> Result<Acquired, Error> {
    let started = Instant::now();
    let until = match wait_limit {
        WaitLimit::For(duration) => Some(started + duration),
        WaitLimit::None | WaitLimit::Forever => None,
    };
    let (contact, told) = (Contact::None, false);
    let mut wait = Wait {
        store,
        request: request.clone(),
        signals,
        report,
        started,
        until,
        contact,
        told,
        seen: None,
        live: None,
        next_reminder: started + FIRST_REMINDER,
    };
    let won = wait.until_won();
    drop(wait.live.take());
    report.make_way(false);
    won
}

struct Wait<'a> {
    store: &'a mut dyn Store,
    request: Request,
    signals: &'a mut Signals,
    report: &'a Report,
    started: Instant,
    until: Option<Instant>,
    contact: Contact,
    /// Whether the server may know of the request, so that a failure must take it back.
    told: bool,
    /// The lock as the server last described it to this waiter, and when that was.
    seen: Option<(Instant, View)>,
    /// The status line at a terminal.
    live: Option<Live>,
    /// When to log the next reminder, if there is no status line.
    next_reminder: Instant,
}

/// The waiter's contact with the server.
#[derive(Clone, Copy)]
enum Contact {
    /// The server has not answered yet.
    None,
    Queued,
    /// Probably still queued, but the server does not answer.
    Lost {
        since: Instant,
        noted: bool,
        back_off: BackOff,
    },
}

impl Wait<'_> {
    fn until_won(&mut self) -> Result<Acquired, Error> {
        loop {
            let asked = self.ask();
            if !self.store.has_queue() && !matches!(asked, Ok((_, Answer::Granted { .. }))) {
                self.request.token = Token::fresh();
                self.told = false;
            }
            match asked {
                Ok((sent, Answer::Granted { fence })) => match self.won(sent, fence) {
                    Ok(won) => return Ok(won),
                    Err(failure) => self.ride_out(failure)?,
                },
                Ok((_, Answer::Busy(view))) => return Err(self.busy(view, Waited::NotAtAll)),
                Ok((_, Answer::Nested)) => return Err(self.give_up(Error::Nested)),
                Ok((_, Answer::Upgrade)) => return Err(self.give_up(Error::Upgrade)),
                Ok((_, Answer::Over(why))) => return Err(Error::NotHeld(why)),
                Ok((_, Answer::Split { pause })) => self.pause(Instant::now() + pause)?,
                Ok((_, Answer::Queued { view, position, sleep })) => {
                    self.wait_in_queue(view, position, sleep)?;
                }
                Err(failure) => self.ride_out(failure)?,
            }
        }
    }

    /// Sends the request. If the connection breaks, sends it once more on a new one: the request is
    /// the same, and a lock that was granted should not stay unused for its TTL.
    fn ask(&mut self) -> Result<(Instant, Answer), Failure> {
        let (mut sent, mut answer) = self.ask_once();
        if let Err(failure @ Failure::Unreachable { fate: Fate::Lost, .. }) = &answer {
            self.report.detail(format_args!("{}; retrying", failure.problem()));
            (sent, answer) = self.ask_once();
        }
        let answer = answer?;
        if let Contact::Lost { since, noted, .. } = self.contact {
            if noted {
                let away = show(Instant::now().since(since));
                self.report.note(format_args!("the server answers again after {away}"));
            }
            self.contact = Contact::Queued;
        }
        Ok((sent, answer))
    }

    fn ask_once(&mut self) -> (Instant, Result<Answer, Failure>) {
        let sent = Instant::now();
        let seen = self.seen(sent);
        let answer = self.store.acquire(&self.request, &seen, Some(self.signals.arrival()));
        self.told |= answer.as_ref().err().is_none_or(Failure::maybe_executed);
        (sent, answer)
    }

    /// Returns the holders that this waiter knows of, and how long each may still hold the lock. A
    /// holder that renews may have renewed just before the server forgot it, so it gets a whole
    /// lease. Any other holder gets the rest of its lease.
    fn seen(&self, now: Instant) -> Vec<Seen> {
        let Some((then, view)) = &self.seen else { return Vec::new() };
        let holders = view.holders.iter().map(|holder| {
            let left = match (holder.standing, holder.client.kind) {
                (HoldState::Held, Kind::Exec | Kind::WhilePid) => {
                    holder.deadline.since(holder.renewed)
                }
                _ => holder.deadline.since(view.now).saturating_sub(now.since(*then)),
            };
            Seen { holder: holder.clone(), life: view.life.clone(), left }
        });
        // Unlisted holders expire sooner than the listed ones unless they renewed since then. A holder
        // renews when a third of its lease has passed.
        let unlisted = view.holder_count > view.holders.len() as u64;
        let holders = holders.map(|seen| match unlisted {
            true => Seen { left: seen.left * 3 / 2, ..seen },
            false => seen,
        });
        holders.filter(|seen| !seen.left.is_zero()).collect()
    }

    /// Accepts a grant whose lease has not expired; the reply may have taken that long.
    fn won(&self, sent: Instant, fence: Fence) -> Result<Acquired, Failure> {
        let now = Instant::now();
        let lease = Lease::won(sent, self.request.ttl);
        if now >= lease.deadline() {
            let fault = Fault::new("the server's answer arrived after its lease had expired");
            return Err(Failure::Unavailable(fault.with_remedy("raise --ttl")));
        }
        let waited = show(now.since(self.started));
        self.report.detail(format_args!("granted after {waited}, fencing token {fence}"));
        Ok(Acquired { token: self.request.token.clone(), lease, fence })
    }

    fn wait_in_queue(
        &mut self,
        view: View,
        position: Option<u64>,
        sleep: Duration,
    ) -> Result<(), Error> {
        let now = Instant::now();
        self.tell(&view, position, now);
        let position =
            position.map_or(String::new(), |position| format!(" at position {position}"));
        let left = self.until.map_or(Duration::MAX, |until| until.since(now));
        if left.is_zero() {
            // The reply to `leave` describes the lock most recently.
            let view = self.leave().unwrap_or(view);
            return Err(self.busy(view, Waited::For(now.since(self.started))));
        }
        let sleep = sleep.min(left);
        self.report.detail(format_args!("waiting{position}, sleeping for up to {}", show(sleep)));
        // A view of another tool's key does not show the holders that it displaced.
        if view.state != State::Foreign {
            self.seen = Some((now, view));
        }
        match self.store.sleep(&self.request, sleep, Some(self.signals.arrival())) {
            Ok(()) => Ok(()),
            Err(failure) => self.ride_out(failure),
        }
    }

    /// Reports the wait: on a status line at a terminal, else at once and then ever more rarely.
    fn tell(&mut self, view: &View, position: Option<u64>, now: Instant) {
        let begins = matches!(self.contact, Contact::None);
        if begins {
            self.contact = Contact::Queued;
        }
        let line = || WaitStatus {
            subject: self.report.subject().to_owned(),
            view: view.clone(),
            then: now,
            position,
            until: self.until,
        };
        match &self.live {
            Some(live) => return live.set(line()),
            None if begins && self.report.is_normal() => {
                self.live = Live::start(line());
                if self.live.is_some() {
                    self.report.make_way(true);
                    return;
                }
            }
            None => {}
        }
        let position =
            position.map_or(String::new(), |position| format!(" at position {position}"));
        let reason = view.mismatch(self.request.mode);
        if begins {
            self.report.note(format_args!("waiting{position}: {view}{reason}"));
        } else if now >= self.next_reminder {
            let waited = now.since(self.started);
            self.next_reminder = now + 3 * waited;
            let waited = show(waited);
            self.report
                .note(format_args!("still waiting{position} after {waited}: {view}{reason}"));
        }
    }

    /// Returns `Ok` if the waiter should ask again. A queued waiter does so until its wait limit: the
    /// server keeps its position for a while, and the request stays the same. The first failure
    /// causes neither a message nor a pause.
    fn ride_out(&mut self, failure: Failure) -> Result<(), Error> {
        let now = Instant::now();
        let in_time = self.until.is_none_or(|until| now < until);
        match (&failure, self.contact) {
            (Failure::Interrupted { .. }, _) => self.stop_if_told(),
            (Failure::Unreachable { .. } | Failure::Unavailable(_), Contact::Queued) if in_time => {
                self.report.detail(format_args!("{}; retrying", failure.problem()));
                self.contact = Contact::Lost { since: now, noted: false, back_off: BACK_OFF };
                Ok(())
            }
            (
                Failure::Unreachable { .. } | Failure::Unavailable(_),
                Contact::Lost { since, noted, mut back_off },
            ) if in_time => {
                if !noted {
                    self.report
                        .note(format_args!("{}; still waiting, retrying", failure.problem()));
                }
                let again = now + back_off.pause();
                self.contact = Contact::Lost { since, noted: true, back_off };
                self.pause(self.until.map_or(again, |until| until.min(again)))
            }
            // A server that has answered once knows of a holder that may still hold the lock.
            (_, Contact::Queued | Contact::Lost { .. }) => {
                Err(self.give_up(Error::LostWhileQueued(failure)))
            }
            (_, Contact::None) => Err(self.give_up(failure.into())),
        }
    }

    fn pause(&mut self, until: Instant) -> Result<(), Error> {
        let arrival = (self.signals.arrival(), Want::Read);
        let [arrived] = ready([arrival], Some(until)).context("cannot wait")?;
        if arrived { self.stop_if_told() } else { Ok(()) }
    }

    fn stop_if_told(&mut self) -> Result<(), Error> {
        match self.signals.pending().first() {
            None => Ok(()),
            Some(arrival) => {
                let signal = arrival.signal;
                self.leave();
                Err(Error::Stopped(signal))
            }
        }
    }

    /// Takes the request back before an error ends the wait. That takes time if the server does not
    /// answer, and a signal that comes meanwhile replaces the error.
    fn give_up(&mut self, error: Error) -> Error {
        self.leave();
        match self.signals.pending().first() {
            Some(arrival) => Error::Stopped(arrival.signal),
            None => error,
        }
    }

    /// Takes the request back if the server may have it. If the server cannot be told, the request
    /// expires by itself.
    fn leave(&mut self) -> Option<View> {
        if !self.told {
            return None;
        }
        match self.store.leave(&self.request) {
            Ok(view) => Some(view),
            Err(failure) => {
                self.report
                    .detail(format_args!("cannot withdraw the request: {}", failure.problem()));
                None
            }
        }
    }

    fn busy(&self, view: View, waited: Waited) -> Error {
        Error::Busy { view: Box::new(view), asked: self.request.mode, waited }
    }
}
