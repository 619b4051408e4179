//! Releases a hold. If the server does not answer, it may recover before the lease expires.
//! Retrying until then saves the waiters the rest of the lease.

pub(crate) mod attempts;

use attempts::{Attempts, Next};

use crate::duration::show;
use crate::lock::view::Outcome;
use crate::lock::{Key, Token};
use crate::report::Report;
use crate::store::{Failure, Release, Store};
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};
use crate::system::signals::Signals;

/// What to release, and what ends the attempts.
pub(super) struct Releasing<'a> {
    pub(super) key: &'a Key,
    pub(super) token: &'a Token,
    pub(super) outcome: Outcome,
    /// The latest time at which the lease expires, if known.
    pub(super) ends: Option<Instant>,
    /// `None` if rlock does not handle signals, so that they end the process.
    pub(super) signals: Option<&'a mut Signals>,
}

/// Releases the hold, and retries while the server does not answer.
pub(super) fn release(
    store: &mut dyn Store,
    mut hold: Releasing<'_>,
    report: &Report,
) -> Result<Release, Failure> {
    let mut attempts = Attempts::new(hold.ends, Instant::now());
    let mut failures = 0;
    loop {
        let Releasing { key, token, outcome, .. } = &hold;
        let answer = store.release(key, token, *outcome);
        let now = Instant::now();
        let (failure, again) = match attempts.answered(answer, now) {
            Next::Done(release) => return Ok(release),
            Next::Failed(failure) => return Err(failure),
            Next::Again(failure, again) => (failure, again),
        };
        failures += 1;
        // A single failure is not worth a message.
        if failures == 2 {
            let left = show(attempts.until().since(now));
            let problem = failure.problem();
            report.note(format_args!("not released yet: {problem}; retrying for up to {left}"));
        }
        if stopped_before(again, hold.signals.as_deref_mut()) {
            return Err(failure);
        }
    }
}

/// Waits until the given time. Returns true if a signal that asks rlock to end comes first.
fn stopped_before(moment: Instant, signals: Option<&mut Signals>) -> bool {
    let Some(signals) = signals else {
        // On an error this does not wait, and time still limits the attempts.
        let _ = ready([], Some(moment));
        return false;
    };
    while !signals.take_end_request() {
        match ready([(signals.arrival(), Want::Read)], Some(moment)) {
            Ok([true]) => {}
            Ok([false]) => return false,
            Err(_) => return true,
        }
    }
    true
}
