//! Durations as users write and read them, and the lengths of leases.

use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use crate::rules::UserMessage;

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// A duration given on the command line or in the environment: from this many milliseconds to a
/// week, in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounded<const LEAST: u64>(Duration);

pub type BoundedDuration = Bounded<0>;

/// A time to wait for a reply or between two frames.
pub type Timeout = Bounded<1>;

/// The length of a lease.
pub type Ttl = Bounded<100>;

impl<const LEAST: u64> Bounded<LEAST> {
    pub fn get(self) -> Duration {
        self.0
    }

    pub fn as_millis(self) -> u64 {
        millis(self.0)
    }
}

impl Timeout {
    pub(crate) const DEFAULT: Self = Self(Duration::from_secs(2));
}

impl Ttl {
    pub const DEFAULT: Self = Self(Duration::from_secs(30));
}

impl<const LEAST: u64> FromStr for Bounded<LEAST> {
    type Err = UserMessage;

    fn from_str(text: &str) -> Result<Self, UserMessage> {
        let fault =
            |problem: &str, remedy: &str| UserMessage::of_value(problem, text).with_remedy(remedy);
        match parse(text) {
            None => Err(fault("not a duration", "use a form such as 90s, 1m30s or 250ms")),
            Some(duration) if duration > WEEK && text.contains('M') => {
                Err(fault("exceeds the limit of 7d", "use 'm' for minutes ('M' is months)"))
            }
            Some(duration) if duration > WEEK => {
                Err(fault("exceeds the limit of 7d", "use a shorter duration"))
            }
            Some(duration) if millis(duration) < LEAST => {
                Err(fault(&format!("below the limit of {LEAST}ms"), "use a longer duration"))
            }
            Some(duration) => Ok(Self(Duration::from_millis(millis(duration)))),
        }
    }
}

/// A duration in milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a text has the form of a duration, within the limits or not.
pub(crate) fn is_duration(text: &str) -> bool {
    parse(text).is_some()
}

/// A bare number counts seconds and may have a fraction, as in flock(1). humantime parses anything
/// else.
fn parse(text: &str) -> Option<Duration> {
    let is_bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match is_bare {
        true => text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        false => humantime::parse_duration(text).ok(),
    }
}

/// Formats a duration for a message, in at most two units: `850ms`, `4.2s`, `2m13s`, `31d7h`.
pub fn show(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{}ms", duration.as_millis())
    } else if duration < Duration::from_secs(10) && duration.subsec_millis() >= 100 {
        format!("{}.{}s", duration.as_secs(), duration.subsec_millis() / 100)
    } else {
        let mut rest = duration.as_secs();
        let units = [(24 * 3_600, "d"), (3_600, "h"), (60, "m"), (1, "s")];
        let parts = units.into_iter().map(|(seconds, unit)| {
            let count = rest / seconds;
            rest %= seconds;
            (count, unit)
        });
        // The largest unit, and the next one unless it is zero.
        let parts = parts.skip_while(|(count, _)| *count == 0).take(2);
        let mut text = String::new();
        for (count, unit) in parts.filter(|(count, _)| *count > 0) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{count}{unit}");
        }
        text
    }
}

/// The same, rounded up: for what must still pass, beside what has passed.
pub(crate) fn show_up(duration: Duration) -> String {
    let unit = match duration.as_secs() {
        0 => 1,
        1..10 => 100,
        10..3_600 => 1_000,
        3_600..86_400 => 60_000,
        _ => 3_600_000,
    };
    let rounded = duration.as_nanos().div_ceil(unit * 1_000_000) * unit;
    show(Duration::from_millis(rounded.try_into().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Ttl {
        pub const fn from_millis(millis: u64) -> Self {
            Self(Duration::from_millis(millis))
        }
    }

    #[test]
    fn a_duration_is_seconds_perhaps_with_a_fraction_or_has_units() {
        for (text, millis) in [
            ("30", 30_000),
            ("0.25", 250),
            (".5", 500),
            ("0", 0),
            ("1m30s", 90_000),
            ("250ms", 250),
            ("7d", 604_800_000),
        ] {
            let duration = text.parse().map(BoundedDuration::get);
            assert_eq!(duration, Ok(Duration::from_millis(millis)), "{text:?}");
        }
        for text in ["", " ", "x", "-1", "1e3", "inf", "NaN", "1.2.3", ".", "10S", "30 parsecs"] {
            assert!(text.parse::<BoundedDuration>().is_err(), "{text:?}");
        }
        assert!(is_duration("1m30s") && !is_duration("x"));
    }

    #[test]
    fn a_lease_lasts_at_least_100_ms() {
        assert!("99ms".parse::<Ttl>().is_err());
        assert_eq!("0.1".parse::<Ttl>().unwrap().as_millis(), 100);
    }

    #[test]
    fn durations_are_shown_in_at_most_two_units() {
        let shown =
            [850, 1_000, 4_210, 12_300, 60_000, 133_000].map(|ms| show(Duration::from_millis(ms)));
        assert_eq!(shown, ["850ms", "1s", "4.2s", "12s", "1m", "2m13s"]);
        // What is left of a second is not nothing, and ends after what has passed of it.
        let micros = [1, 999_001, 1_020_000, 12_000_001, 3_601_000_000, 90_000_000_000];
        let shown = micros.map(|micros| show_up(Duration::from_micros(micros)));
        assert_eq!(shown, ["1ms", "1s", "1.1s", "13s", "1h1m", "1d1h"]);
    }
}
