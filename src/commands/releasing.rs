//! The release of a hold. A server that is away just then may be back before the lease expires, and
//! others should not have to wait for that.

use std::time::Duration;

use super::reported::Reported;
use crate::duration::show;
use crate::lock::view::Outcome;
use crate::lock::{Key, Token};
use crate::store::{Failure, Release};
use crate::system::back_off::BackOff;
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};
use crate::system::signals::Signals;

/// Nobody's exit is held up for longer, but for the time that the last attempt takes.
const AT_MOST: Duration = Duration::from_secs(10);

/// Between two attempts.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(50), Duration::from_millis(500));

/// What is to be released, until when that makes a difference, and what ends the attempts.
pub(super) struct Releasing<'a> {
    pub(super) key: &'a Key,
    pub(super) token: &'a Token,
    pub(super) outcome: Outcome,
    /// When the lease is over at the latest, if that is known.
    pub(super) ends: Option<Instant>,
    /// If they are listened to: otherwise they end the process.
    pub(super) signals: Option<&'a mut Signals>,
}

/// Releases it, and tries again while the server is away.
pub(super) fn release(
    store: &mut Reported<'_>,
    mut hold: Releasing<'_>,
) -> Result<Release, Failure> {
    let longest = Instant::now() + AT_MOST;
    let until = hold.ends.map_or(longest, |ends| ends.min(longest));
    let (mut back_off, mut attempts, mut maybe_done) = (BACK_OFF, 0, false);
    loop {
        let Releasing { key, token, outcome, .. } = &hold;
        let failure = match store.ask(|store| store.release(key, token, *outcome)) {
            // An earlier attempt may have done it without our hearing of it.
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
        // Once is not worth a word.
        if attempts == 2 {
            let left = show(until.since(now));
            let report = store.report();
            report.note(format_args!("not released yet: {failure}; retrying for up to {left}"));
        }
        if stopped_before(now + pause, hold.signals.as_deref_mut()) {
            return Err(failure);
        }
    }
}

/// Waits. Only a signal by which people end a process says that nobody wants to wait for this.
fn stopped_before(moment: Instant, signals: Option<&mut Signals>) -> bool {
    let Some(signals) = signals else {
        // An error means not to wait, and the number of attempts is bounded by time.
        let _ = ready([], Some(moment));
        return false;
    };
    while !signals.is_to_end() {
        match ready([(signals.arrival(), Want::Read)], Some(moment)) {
            Ok([true]) => {}
            Ok([false]) => return false,
            Err(_) => return true,
        }
    }
    true
}
