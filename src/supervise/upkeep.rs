//! What the event loops around a command and around a watched process share: a lease that is
//! renewed, and the state machine that learns in time what becomes of it.

use std::io;
use std::iter::{from_fn, repeat_with};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use rustix::io::fcntl_dupfd_cloexec;

use super::renewer::{RenewableHold, Renewer, Wakeups};
use crate::error::Error;
use crate::report::{Report, StderrWait, plain};
use crate::rules::supervisor::{Action, Event, Machine};
use crate::rules::{Blame, Instant, LockOutcome, LossPolicy, SystemCall};
use crate::store::Store;
use crate::system::call::errno;
use crate::system::channel::{Receiver, channel};
use crate::system::clock::Alarm;
use crate::system::continue_timer::ContinueTimer;
use crate::system::poll::{Want, ready};
use crate::system::signals::Signals;
use crate::system::thread;

/// How long a command runs before the renewing thread starts, unless a renewal is due sooner, and the
/// pause between two attempts to start it. Most commands end before that, and a thread costs them a
/// twentieth of their time. Much later, the command could have used up a limit on processes.
const THREAD_DELAY: Duration = Duration::from_millis(100);

/// How many descriptors a renewal over a new connection and a search for processes may take.
const SPARE: usize = 8;

/// Guards what runs under a hold.
pub(crate) struct Upkeep {
    pub(super) machine: Machine,
    /// Whether the lock was kept until now.
    pub(super) lock: LockOutcome,
    alarm: Alarm,
    continue_timer: ContinueTimer,
    renewer: Arc<Renewer>,
    /// When to start the renewing thread, unless it runs.
    thread_at: Option<Instant>,
    events: Receiver<Event>,
}

impl Upkeep {
    /// Call this before the command starts, so that a lack of descriptors, even of those that only a
    /// renewal or a loss will need, is an error while nothing runs.
    pub(crate) fn prepare(
        hold: RenewableHold,
        loss_policy: LossPolicy,
        report: &Report,
    ) -> Result<Self, Error> {
        let machine = Machine::new(hold.lease, loss_policy);
        Self::open(hold, machine, report.clone()).map_err(|error| {
            match SystemCall::Resource.failed(errno(&error), plain(&error)) {
                (Blame::Host, lack) => {
                    lack.reworded(|why| format!("cannot prepare for renewals: {why}")).into()
                }
                _ => Error::system("cannot prepare for renewals", error),
            }
        })
    }

    fn open(hold: RenewableHold, machine: Machine, mut report: Report) -> io::Result<Self> {
        let (alarm, wakeups) = (Alarm::new()?, Wakeups::new()?);
        let (sender, events) = channel()?;
        // Only to see that so many are free.
        let spare = repeat_with(|| fcntl_dupfd_cloexec(&alarm, 0)).take(SPARE);
        spare.collect::<Result<Vec<_>, _>>()?;
        report.stderr_wait = StderrWait::Short(None);
        let (store, kill_after) = (Mutex::default(), machine.kill_after);
        let renewer = Arc::new(Renewer { store, hold, kill_after, sender, wakeups, report });
        let mut continue_timer = ContinueTimer::new();
        continue_timer.set(machine.continue_at());
        let lock = LockOutcome::Kept;
        Ok(Self { machine, lock, alarm, continue_timer, renewer, thread_at: None, events })
    }

    /// Takes over the store until the end, and renews the lease from now on. Warns if rlock could
    /// not act in time after it was suspended.
    pub(super) fn take_over(&mut self, store: Box<dyn Store>, warn: impl FnOnce(&str)) {
        if let (Some(_), Some(errno)) = (self.machine.continue_at(), self.continue_timer.failure())
        {
            let remedy = if errno == Errno::EAGAIN { "raise ulimit -i" } else { "allow this call" };
            let why = plain(&errno.into());
            warn(&format!("cannot resume rlock if it is suspended: timer_create: {why}; {remedy}"));
        }
        let due = self.renewer.hold.lease.renew_at();
        self.thread_at = Some(due.min(Instant::now() + THREAD_DELAY));
        *self.renewer.store() = Some(store);
    }

    /// Starts the renewing thread if it is time. If the system cannot start one now, a later call
    /// tries again.
    pub(super) fn start_thread(&mut self) -> Option<Event> {
        let now = Instant::now();
        self.thread_at.take_if(|at| *at <= now)?;
        let renewer = self.renewer.clone();
        let error = thread::start("renewer", move || renewer.run()).err()?;
        self.thread_at = Some(now + THREAD_DELAY);
        let reason = format!("cannot start a thread for renewals: {}", plain(&error));
        Some(Event::NotRenewed(reason))
    }

    /// Asks the server now, even if no renewal is due.
    pub(super) fn hurry(&self) {
        self.renewer.wakeups.hurry.wake();
    }

    /// Handles an event, and returns what to do. What the renewing thread has learned comes first: a
    /// renewal that was in time counts, however late this runs.
    pub(super) fn on(&mut self, event: Event) -> Vec<Action> {
        let now = Instant::now();
        let learned = from_fn(|| self.events.next_at_once());
        let actions = self.machine.on(learned, event, now);
        // Before they are carried out, because a stop may come in between. Without a new moment, the
        // old one stays, because its second signal may have yet to come: see `ContinueTimer`.
        if let Some(moment) = self.machine.continue_at() {
            self.continue_timer.set(Some(moment));
        }
        if actions.iter().any(|action| matches!(action, Action::ReportLoss(_))) {
            self.lock = LockOutcome::Lost;
        }
        actions
    }

    /// Stops rlock by this signal until it is continued.
    pub(super) fn stop(&mut self, signal: Signal, signals: &mut Signals) {
        // If this fails, rlock did not stop, and simply continues.
        let _ = signals.stop(signal, &mut self.continue_timer);
    }

    /// Waits until the renewing thread has learned something, a signal arrives, `process` has ended,
    /// the machine needs to look at the time, or `until`.
    pub(super) fn wait(
        &mut self,
        signals: &Signals,
        process: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> io::Result<()> {
        let wake_at = [self.machine.wake_at(), self.thread_at].into_iter().flatten().min();
        self.alarm.set(wake_at)?;
        let (alarm, events) = (self.alarm.as_fd(), self.events.as_fd());
        let wanted = [alarm, process.unwrap_or(alarm), signals.readable(), events];
        let [.., has_arrived] = ready(wanted.map(|descriptor| (descriptor, Want::Read)), until)?;
        if has_arrived {
            self.events.clear();
        }
        Ok(())
    }

    /// Stops renewing, and returns the store that `take_over` was given.
    #[expect(clippy::expect_used, reason = "only this takes what `take_over` has put there")]
    pub(super) fn end(self) -> Box<dyn Store> {
        self.renewer.take_store().expect("the store is there")
    }
}
