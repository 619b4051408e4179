//! Releases a hold. If the server does not answer, it may recover before the lease expires.
//! Retrying until then saves the waiters the rest of the lease.

use std::time::Duration;

use crate::duration::show;
use crate::lock::view::Outcome;
use crate::lock::{Key, Token};
use crate::report::Report;
use crate::store::{Failure, Release, Store};
use crate::system::back_off::BackOff;
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};
use crate::system::signals::Signals;

/// The longest time that a release may delay the exit, not counting its last attempt.
const AT_MOST: Duration = Duration::from_secs(10);

/// The pause between two attempts.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(50), Duration::from_millis(500));

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
    let longest = Instant::now() + AT_MOST;
    let until = hold.ends.map_or(longest, |ends| ends.min(longest));
    let (mut back_off, mut attempts, mut maybe_done) = (BACK_OFF, 0, false);
    loop {
        let Releasing { key, token, outcome, .. } = &hold;
        let failure = match store.release(key, token, *outcome) {
            // An earlier attempt may have released it, and its reply was lost.
            Ok(Release::NotHeld(why)) if maybe_done && why.is_released() => {
                return Ok(Release::Released);
            }
            Ok(Release::NotHeld(why)) if maybe_done && !why.is_known() => {
                return Ok(Release::Unknown);
            }
            Ok(released) => return Ok(released),
            Err(failure) => failure,
        };
        maybe_done |= failure.maybe_executed();
        let (now, pause) = (Instant::now(), back_off.pause());
        if !failure.is_transient() || now + pause >= until {
            return Err(failure);
        }
        attempts += 1;
        // A single failure is not worth a message.
        if attempts == 2 {
            let left = show(until.since(now));
            let problem = failure.problem();
            report.note(format_args!("not released yet: {problem}; retrying for up to {left}"));
        }
        if stopped_before(now + pause, hold.signals.as_deref_mut()) {
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
