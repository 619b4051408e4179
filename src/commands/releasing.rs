//! Releases a hold. If the server is away, it may be back before the lease expires, and retrying
//! until then spares the waiters the rest of the lease.

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

/// The longest that a release may delay the exit, apart from its last attempt.
const AT_MOST: Duration = Duration::from_secs(10);

/// Between two attempts.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(50), Duration::from_millis(500));

/// What to release, how long that matters, and what ends the attempts.
pub(super) struct Releasing<'a> {
    pub(super) key: &'a Key,
    pub(super) token: &'a Token,
    pub(super) outcome: Outcome,
    /// When the lease expires at the latest, if that is known.
    pub(super) ends: Option<Instant>,
    /// `None` if rlock does not handle signals, so that they end the process.
    pub(super) signals: Option<&'a mut Signals>,
}

/// Releases it, and retries while the server is away.
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
            // An earlier attempt may have released it, and only its reply was lost.
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

/// Waits until then. Returns true if a signal that ends a process comes first.
fn stopped_before(moment: Instant, signals: Option<&mut Signals>) -> bool {
    let Some(signals) = signals else {
        // On an error there is no wait; time still bounds the attempts.
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
