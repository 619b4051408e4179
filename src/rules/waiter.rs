//! The decisions of a waiter, as a pure state machine from answers, signals and the time to the
//! next step.

mod steps;
#[cfg(test)]
mod tests;

use std::time::Duration;

use steps::SHORT_SLEEP;
pub use steps::{Note, Stop, WaitEnd, WaitEvent, WaitStep};

use crate::rules::lease::renewed_with;
use crate::rules::{
    Answer, BackOff, Failure, FailureKind, Fence, HoldKind, HoldState, Holder, Instant, Lateness,
    Lease, NotRunning, Seen, Slot, State, Ticket, Ttl, UserMessage, View,
};

/// The pauses between two attempts to reach a server that does not answer.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(100), Duration::from_secs(2));

/// The longest heartbeat interval. With a short TTL, the interval is a third of the TTL, another one
/// than that of renewals: a user who chooses a short TTL wants faults to be noticed soon.
const HEARTBEAT_AT_MOST: Duration = Duration::from_secs(10);

/// How long after its limit a waiter still awaits replies: that its sleep is over, to its last
/// request for the lock, to its withdrawal, and about the present state. On a slow link it only
/// withdraws, with the last view. Redis 8 ends a sleep up to 100 ms late.
const LAST_QUESTIONS: Duration = Duration::from_millis(500);

/// On a link with a longer round trip, these replies could come too late.
const SLOW: Duration = Duration::from_millis(125);

/// How long a waiter awaits its first answer at least, which includes the connection.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// How long a new head waits for its grant before it asks for the new holder's deadline.
const HEAD_PAUSE: Duration = Duration::from_millis(10);

/// How long a waiter listens for another message before it asks, after a sleep of up to `at_most`.
///
/// A release wakes the new holder and the new head at once. The head's request can wait, so that it
/// does not delay the new holder's claim. After a short command, the request is not needed.
pub(crate) fn pause_of_a_head(is_head: bool, at_most: Duration) -> Option<Duration> {
    is_head.then(|| at_most.min(HEAD_PAUSE))
}

/// How often a waiter for a lease of this length tells the server that it is alive.
pub fn heartbeat(ttl: Duration) -> Duration {
    (ttl / 3).min(HEARTBEAT_AT_MOST)
}

/// The waiter's state.
#[derive(Clone, Debug, Hash)]
pub struct WaitMachine {
    ttl: Ttl,
    /// `None`: no limit. A request that does not wait has none either: its first answer ends it.
    pub wait_until: Option<Instant>,
    /// Until when to try again before the first answer; `None` if the first failure is final.
    pub start_until: Option<Instant>,
    /// Until when to await the first answer at least, if `start_until` limits that.
    pub first_answer_until: Option<Instant>,
    /// Whether the server has answered, and so has reported a holder that may still hold the lock.
    has_answered: bool,
    /// Set while the server does not answer.
    outage: Option<BackOff>,
    /// Set while sleeps are cut short.
    polling: Option<Polling>,
    /// Whether the server may have the request, so that a failure must withdraw it.
    maybe_queued: bool,
    /// Whether the request was just repeated on a new connection.
    repeated: bool,
    /// Whether the last answer took a long round trip.
    is_slow: bool,
    /// From the first answer, if the request supersedes.
    arrival: Option<Ticket>,
    /// The lock as the server last described it to this waiter, and when that was.
    pub last_view: Option<(Instant, View)>,
    /// Set when a step begins, to tell at its end whether rlock itself was late.
    pub lateness: Option<Lateness>,
    /// How late it ran in the last step, until a failure or a note says so.
    not_running: Option<NotRunning>,
    /// What to report now.
    notes: Vec<Note>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Polling {
    is_noted: bool,
    back_off: BackOff,
}

impl WaitMachine {
    /// A waiter for a lease of this length, and its first step at `started`.
    pub fn new(
        ttl: Ttl,
        wait_until: Option<Instant>,
        start_until: Option<Instant>,
        started: Instant,
    ) -> (Self, WaitStep) {
        let mut waiter = Self {
            ttl,
            wait_until,
            start_until,
            first_answer_until: start_until.map(|_| started + FIRST_ANSWER),
            has_answered: false,
            outage: None,
            polling: None,
            maybe_queued: false,
            repeated: false,
            is_slow: false,
            last_view: None,
            arrival: None,
            lateness: None,
            not_running: None,
            notes: Vec::new(),
        };
        let step = waiter.ask(started);
        waiter.lateness = waiter.lateness_of(&step, started);
        (waiter, step)
    }

    /// Begins to watch whether rlock itself is late: whether this step takes longer than it can
    /// otherwise.
    fn lateness_of(&self, step: &WaitStep, now: Instant) -> Option<Lateness> {
        let ttl = self.ttl.get();
        let due = match step {
            WaitStep::Rest { at } => *at,
            WaitStep::Sleep { at_most, .. } => now + *at_most,
            // This may take several requests.
            WaitStep::Ask { .. } => now + ttl,
            WaitStep::Withdraw(_) | WaitStep::End(_) => return None,
        };
        let due = self.deadline().into_iter().fold(due, Instant::min);
        // A last reply may take the I/O timeout, which is a quarter of the TTL at most.
        Some(Lateness::since(now).asleep_until(due.max(now) + ttl / 4))
    }

    /// Until when the waiter asks again. `None` after the first answer: there is no limit; before it:
    /// the first failure is final.
    fn limit(&self) -> Option<Instant> {
        if self.has_answered { self.wait_until } else { self.start_until }
    }

    /// From when on no reply is awaited: the one deadline for all that follows the limit.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadline = self.limit()? + LAST_QUESTIONS;
        let first = self.first_answer_until.filter(|_| !self.has_answered);
        Some(first.map_or(deadline, |first| deadline.max(first)))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Handles the result of the last step. `stop` is what has happened meanwhile and ends the
    /// wait.
    pub fn on(
        &mut self,
        event: WaitEvent,
        stop: Option<Stop>,
        now: Instant,
    ) -> (Vec<Note>, WaitStep) {
        self.not_running = self.lateness.and_then(|lateness| lateness.explains(now));
        let step = match event {
            WaitEvent::Answered { sent, answer } => self.answered(sent, answer, now),
            // An interrupted sleep says nothing about the server.
            WaitEvent::Woken(Err(failure)) | WaitEvent::CutShort(failure)
                if failure.kind == FailureKind::Interrupted =>
            {
                self.ask_in_time(now)
            }
            WaitEvent::Rested => self.ask_in_time(now),
            WaitEvent::Woken(result) => {
                self.polling = None;
                match result {
                    Ok(()) => self.ask_in_time(now),
                    Err(failure) => self.ride_out(failure, now),
                }
            }
            WaitEvent::CutShort(failure) => self.cut_short(failure, now),
            WaitEvent::Withdrawn(end, Ok(())) => WaitStep::End(end),
            WaitEvent::Withdrawn(end, Err(failure)) => {
                self.notes.push(Note::NotWithdrawn(failure.clone()));
                // Its last view of the lock was old. A reply that was only late says nothing.
                let is_lost = matches!(end, WaitEnd::TimedOut(_))
                    && failure.is_transient()
                    && !(failure.is_pending() && self.is_over(now));
                WaitStep::End(if is_lost { WaitEnd::Failed(failure) } else { end })
            }
        };
        let step = match (stop, step) {
            // The caller releases the lock.
            (_, step @ WaitStep::End(WaitEnd::Granted(..))) | (None, step) => step,
            (Some(stop), WaitStep::End(_)) => WaitStep::End(WaitEnd::Stopped(stop)),
            (Some(stop), _) => self.withdraw(WaitEnd::Stopped(stop)),
        };
        self.notes.extend(self.not_running.take().map(Note::NotRunning));
        self.lateness = self.lateness_of(&step, now);
        (std::mem::take(&mut self.notes), step)
    }

    fn ask(&self, now: Instant) -> WaitStep {
        WaitStep::Ask { seen: self.seen(now), arrival: self.arrival }
    }

    /// Asks again, unless the answer would come too late. On a slow link, it could no longer arrive
    /// then, so the waiter rests until its limit and withdraws, with the last view. In an outage,
    /// `ride_out` decides.
    fn ask_in_time(&self, now: Instant) -> WaitStep {
        match (self.wait_until, &self.last_view, self.outage) {
            (Some(until), Some((_, view)), None)
                if self.is_over(now) || self.is_slow && now >= until =>
            {
                self.withdraw(WaitEnd::TimedOut(view.clone()))
            }
            (Some(until), Some(_), None) if self.is_slow && now + SLOW >= until => {
                WaitStep::Rest { at: until }
            }
            _ => self.ask(now),
        }
    }

    fn answered(
        &mut self,
        sent: Instant,
        answer: Result<Answer, Failure>,
        now: Instant,
    ) -> WaitStep {
        self.maybe_queued |= answer.as_ref().err().is_none_or(Failure::maybe_executed);
        // The request stays the same on a new connection, and a granted lock should not stay unused
        // for its TTL: so even one that does not wait, or whose limit has passed, asks once more.
        if let Err(failure) = &answer
            && failure.is_lost()
            && !self.repeated
        {
            self.repeated = true;
            self.notes.push(Note::Retrying(failure.clone()));
            return self.ask(now);
        }
        self.repeated = false;
        if answer.is_ok() && self.outage.take().is_some() {
            self.notes.push(Note::Back);
        }
        match answer {
            Ok(Answer::Granted { fence, slot }) => self.granted(sent, fence, slot, now),
            // Only a request that does not wait is busy, and it is in no queue.
            Ok(Answer::Busy(view)) => WaitStep::End(WaitEnd::Busy(view)),
            // An earlier copy, or other servers of a quorum, may have queued these.
            Ok(Answer::Nested) => self.withdraw(WaitEnd::Nested),
            Ok(Answer::Upgrade) => self.withdraw(WaitEnd::Upgrade),
            Ok(Answer::Ended(why)) => WaitStep::End(WaitEnd::Ended(why)),
            Ok(Answer::Superseded(newer)) => WaitStep::End(WaitEnd::Superseded(newer)),
            Ok(Answer::Removed(operator)) => WaitStep::End(WaitEnd::Removed(operator)),
            Ok(Answer::Queued { view, position, sleep, arrival, obstacle }) => {
                if self.arrival.is_none() && arrival.is_some() {
                    // It cancels older requests only now.
                    self.arrival = arrival;
                    self.has_answered = true;
                    return self.ask(now);
                }
                self.queued(sent, view, position, sleep, obstacle, now)
            }
            Err(failure) => self.ride_out(failure, now),
        }
    }

    /// Accepts a grant, unless its lease expired while the reply was under way.
    fn granted(
        &mut self,
        sent: Instant,
        fence: Fence,
        slot: Option<Slot>,
        now: Instant,
    ) -> WaitStep {
        let lease = Lease::new(sent, self.ttl);
        if now < lease.deadline() {
            return WaitStep::End(WaitEnd::Granted(lease, fence, slot));
        }
        let late = UserMessage::new("the reply arrived after the lease had expired");
        let fault = self.explained(late.with_remedy("raise --ttl"));
        self.ride_out(Failure::new(FailureKind::Unavailable, fault), now)
    }

    fn queued(
        &mut self,
        sent: Instant,
        view: View,
        position: u64,
        sleep: Duration,
        obstacle: Option<Failure>,
        now: Instant,
    ) -> WaitStep {
        self.has_answered = true;
        let left = self.wait_until.map_or(Duration::MAX, |until| until.since(now));
        let sleep = sleep.min(left);
        // The store itself reports the obstacle, and the position means nothing until it is gone.
        if obstacle.is_none() {
            self.notes.push(Note::Queued { view: view.clone(), position, sleep });
        }
        if left.is_zero() {
            return self.withdraw(obstacle.map_or(WaitEnd::TimedOut(view), WaitEnd::Failed));
        }
        // A view of another tool's key does not show the holders that it displaced.
        if view.state != State::Foreign {
            self.last_view = Some((now, view));
        }
        // On a slow link, the end of the sleep must be heard before the deadline.
        let round_trip = now.since(sent);
        self.is_slow = round_trip > SLOW;
        let on_the_way = if self.is_slow { round_trip } else { Duration::ZERO };
        let at_most = sleep.min(left.saturating_sub(on_the_way));
        // Not if the server said 0, which only a faulty one does.
        match self.wait_until.filter(|_| at_most.is_zero() && !sleep.is_zero()) {
            Some(until) => WaitStep::Rest { at: until },
            None => WaitStep::Sleep { at_most, seen: self.seen(now) },
        }
    }

    /// The holders that this waiter has seen, as far as they may still hold the lock. One that
    /// renews may have renewed just before the server forgot it, so it counts with a whole lease.
    /// Any other holder counts with the rest of its lease.
    fn seen(&self, now: Instant) -> Option<Seen> {
        let (then, view) = self.last_view.as_ref()?;
        let left = |holder: &Holder| match (holder.state, holder.client.kind) {
            (HoldState::Held, HoldKind::Exec | HoldKind::WhilePid) => {
                holder.deadline.since(holder.renewed)
            }
            _ => holder.deadline.since(view.now).saturating_sub(now.since(*then)),
        };
        let holders = || view.holders.iter().filter(|holder| !left(holder).is_zero());
        let (fence, left) = (holders().map(|it| it.fence).max()?, holders().map(left).max()?);
        let mut ids: Vec<String> = holders().flat_map(Holder::ids).cloned().collect();
        // If holders are missing from the list, one of them may have renewed since, which restores a
        // whole lease. No more of it was left than of those that are listed.
        let unlisted = view.unlisted_holders > 0;
        ids.extend(unlisted.then(|| "*".to_owned()));
        let left = if unlisted { renewed_with(left) } else { left };
        let generation = view.generation.clone();
        (!generation.is_empty()).then_some(Seen { generation, fence, left, ids })
    }

    /// Asks again after a failure that may pass, until the limit of this wait: the request stays the
    /// same, the server keeps its position for a while, and a grant that too few replicas have
    /// confirmed is kept. The first failure causes neither a message nor a pause.
    fn ride_out(&mut self, failure: Failure, now: Instant) -> WaitStep {
        let failure = match failure.kind {
            // A quorum and local: end at the deadline like this; one server does not answer in time.
            FailureKind::Interrupted if self.is_over(now) => {
                let fault = UserMessage::new("no answer within the wait limit");
                let fault = fault.with_remedy("check the servers and the network");
                Failure::unreachable(self.explained(fault), failure.delivery)
            }
            // If that was a stop, `on` replaces this step.
            FailureKind::Interrupted => return self.ask(now),
            _ if failure.is_pending() => {
                Failure { fault: self.explained(failure.fault), ..failure }
            }
            _ => failure,
        };
        let until = self.limit();
        let is_in_time = until.map_or(self.has_answered, |until| now < until);
        if !is_in_time || !failure.is_transient() {
            let failure = if until.is_some() { failure.outlasted() } else { failure };
            return self.withdraw(WaitEnd::Failed(failure));
        }
        let Some(outage) = &mut self.outage else {
            self.notes.push(Note::Retrying(failure));
            self.outage = Some(BACK_OFF);
            return self.ask(now);
        };
        self.notes.push(Note::Away(failure));
        let again = now + outage.pause();
        WaitStep::Rest { at: until.map_or(again, |until| until.min(again)) }
    }

    /// Why there was no answer in time: rlock itself, if it was late.
    fn explained(&mut self, fault: UserMessage) -> UserMessage {
        self.not_running.take().map_or(fault, |it| UserMessage::new(it.to_string()))
    }

    /// Asks again at once if a sleep is cut short for the first time, as after any broken connection,
    /// and after growing pauses if the next one is, too.
    fn cut_short(&mut self, failure: Failure, now: Instant) -> WaitStep {
        let longest = heartbeat(self.ttl.get()).max(SHORT_SLEEP);
        let begins = BackOff::new(SHORT_SLEEP, longest);
        let Some(polling) = &mut self.polling else {
            self.polling = Some(Polling { is_noted: false, back_off: begins });
            return self.ride_out(failure, now);
        };
        if !failure.is_transient() {
            return self.ride_out(failure, now);
        }
        let again = now + polling.back_off.pause();
        if !std::mem::replace(&mut polling.is_noted, true) {
            self.notes.push(Note::Polling(failure, longest));
        }
        WaitStep::Rest { at: self.wait_until.map_or(again, |until| until.min(again)) }
    }

    /// Ends the wait. If the server may have the request, withdraws it first.
    fn withdraw(&self, end: WaitEnd) -> WaitStep {
        if self.maybe_queued { WaitStep::Withdraw(end) } else { WaitStep::End(end) }
    }
}
