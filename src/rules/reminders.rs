//! When a wait shows in a log that it goes on.

use std::time::Duration;

use crate::rules::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// The longest silence. CI systems end a step that prints nothing for some minutes; with a
/// heartbeat on top, it stays below 5.
const LONGEST_INTERVAL: Duration = Duration::from_secs(5 * 60 - 30);

/// A position in the queue, and the holder.
type Situation = (u64, Option<String>);

/// When the messages about one wait are due.
#[derive(Clone, Debug)]
pub(crate) struct Reminders {
    started: Instant,
    last: Instant,
    /// What the last message told, and when one was last due because this had changed.
    told: Option<Situation>,
    changed: Option<Instant>,
}

impl Reminders {
    pub(crate) fn new(started: Instant) -> Self {
        Self { started, last: started, told: None, changed: None }
    }

    /// Whether to print a message now: at growing intervals, and at each change, but for that at
    /// most once a minute. `situation` is `None` if the server does not answer.
    pub(crate) fn is_due(&mut self, situation: Option<Situation>, now: Instant) -> bool {
        let interval = (3 * self.last.since(self.started)).clamp(MINUTE, LONGEST_INTERVAL);
        let is_new = situation.is_some() && situation != self.told;
        let changed = is_new && self.changed.is_none_or(|at| now.since(at) >= MINUTE);
        if !changed && now.since(self.last) < interval {
            return false;
        }
        // The first message is not about a change.
        self.changed = if changed { self.told.as_ref().map(|_| now) } else { self.changed };
        self.told = situation.or(self.told.take());
        self.last = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which messages are due in a wait of an hour that asks every 10 s. `situation`
    /// is the position and the holder at each time.
    fn due(situation: impl Fn(u64) -> Option<(u64, Option<String>)>) -> Vec<u64> {
        let at = |seconds| Instant::at_millis(seconds * 1_000);
        let mut reminders = Reminders::new(at(0));
        (0..=3_600)
            .step_by(10)
            .filter(|&time| reminders.is_due(situation(time), at(time)))
            .collect()
    }

    #[test]
    fn a_wait_shows_life_every_5_minutes_and_each_change_but_that_once_a_minute() {
        let held = |holder: &str| Some((1, Some(holder.to_owned())));
        let quiet = due(|_| held("a"));
        assert_eq!(quiet[..5], [0, 60, 240, 510, 780]);
        assert!(quiet.windows(2).all(|pair| pair[1] - pair[0] <= 290), "{quiet:?}");
        // An outage before the first answer, and a later one.
        assert_eq!(due(|_| None)[..4], [60, 240, 510, 780]);
        assert_eq!(due(|time| held("a").filter(|_| time < 100))[..4], [0, 60, 240, 510]);
        // The first change at once, the next ones when a minute is over.
        let changing = due(|time| held(if time < 20 { "a" } else { "b" }));
        assert_eq!(changing[..4], [0, 20, 80, 320]);
        let moving = due(|time| Some((100 - time.min(90) / 10, None)));
        assert_eq!(moving[..4], [0, 10, 70, 130]);
    }
}
