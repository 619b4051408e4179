//! Repeats a request while the server does not answer: it may recover before the lease expires. A
//! release that is repeated until then saves the waiters the rest of the lease.

use std::ops::ControlFlow::{Break, Continue};

use crate::report::Report;
use crate::rules::{Attempts, Failure, Instant, Repeatable, show};
use crate::store::Store;
use crate::system::poll::{NEVER, Woken, wait};
use crate::system::signals::{Signals, asks_to_end};

/// A request that is repeated until it succeeds, and what ends the attempts.
pub(super) struct Retry<'a> {
    /// What has not happened while the server does not answer, for messages.
    pub(super) pending: &'static str,
    /// When the lease expires, if known: as `Attempts::deadline`, also after the attempts.
    pub(super) deadline: Option<Instant>,
    /// `None` if rlock does not handle signals, so that they end the process.
    pub(super) signals: Option<&'a mut Signals>,
}

impl Retry<'_> {
    /// Of a request whose lease is unknown.
    pub(super) fn of(pending: &'static str) -> Self {
        Self { pending, deadline: None, signals: None }
    }

    /// Sends the request, and sends it again while the server does not answer.
    pub(super) fn run<T: Repeatable>(
        &mut self,
        store: &mut dyn Store,
        report: &Report,
        mut request: impl FnMut(&mut dyn Store) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut attempts = Attempts::new(self.deadline, Instant::now());
        let mut failures = 0;
        loop {
            let sent = Instant::now();
            let answer = request(store);
            report.diagnostics(store.diagnostics());
            let now = Instant::now();
            let next = attempts.answered(sent, answer, now);
            self.deadline = attempts.deadline;
            let (failure, again) = match next {
                Break(end) => return end,
                Continue(next) => next,
            };
            failures += 1;
            let (pending, problem) = (self.pending, failure.problem());
            // A single failure is not worth a message.
            if failures == 1 {
                report.detail(format_args!("{problem}; retrying"));
            }
            if failures == 2 {
                let left = show(attempts.until.since(now));
                report.note(format_args!("{pending} yet: {problem}; retrying for up to {left}"));
            }
            if stopped_before(again, self.signals.as_deref_mut()) {
                return Err(failure);
            }
        }
    }
}

/// Waits until the given time. Returns true if a signal that asks rlock to end comes first.
fn stopped_before(moment: Instant, mut signals: Option<&mut Signals>) -> bool {
    // Any other signal was for the command.
    let mut has_come =
        |it: &mut Signals| it.pending().iter().any(|arrived| asks_to_end(arrived.signal));
    while !signals.as_deref_mut().is_some_and(&mut has_come) {
        let stop = signals.as_deref().map(Signals::readable);
        match wait(None, NEVER.or(stop), moment) {
            Ok(Woken::Interrupted) => {}
            // On an error, this does not wait. Without signals, time still limits the attempts.
            woken => return woken.is_err() && signals.is_some(),
        }
    }
    true
}
