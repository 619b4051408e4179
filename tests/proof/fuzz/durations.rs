//! Durations, from users and from servers.

use std::time::Duration;

use super::promises::{one_line, printable, text};
use rlock::rules::{BoundedDuration, Timeout, Ttl, show};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Checks durations: what is read is within its limits, and what is shown can be read again.
pub fn durations(bytes: &[u8]) {
    let text = &*text(bytes);
    match text.parse().map(BoundedDuration::get) {
        Ok(duration) => {
            assert!(duration <= WEEK, "{text:?} is {duration:?}");
            let shown = show(duration);
            let read = shown.parse().map(BoundedDuration::get).expect("a duration");
            assert!(read <= duration, "{text:?} shows as {shown}");
        }
        Err(fault) => one_line(&fault.to_string()),
    }
    if let Ok(timeout) = text.parse().map(Timeout::get) {
        assert!((Duration::from_millis(1)..=WEEK).contains(&timeout), "{text:?} is {timeout:?}");
    }
    if let Ok(ttl) = text.parse::<Ttl>() {
        assert!((100..=WEEK.as_millis()).contains(&ttl.as_millis().into()), "{text:?} is {ttl:?}");
    }
    // Servers report times of any length.
    let mut number = [0; 8];
    number.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let shown = show(Duration::from_millis(u64::from_le_bytes(number)));
    printable(&shown);
    assert!(!shown.is_empty());
}
