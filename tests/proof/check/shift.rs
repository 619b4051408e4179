//! Time passes: all times move back.

use std::time::Duration;

use rlock::rules::supervisor::{self, Machine};
use rlock::rules::waiter::WaitMachine;
use rlock::rules::{Instant, Lateness};

pub(super) trait Shift {
    /// Moves all times to a clock that shows this much less.
    fn shift(&mut self, back: Duration);
}

impl Shift for Instant {
    fn shift(&mut self, back: Duration) {
        *self = *self - back;
    }
}

impl<T: Shift> Shift for Option<T> {
    fn shift(&mut self, back: Duration) {
        self.iter_mut().for_each(|it| it.shift(back));
    }
}

impl Shift for WaitMachine {
    fn shift(&mut self, back: Duration) {
        self.wait_until.shift(back);
        self.start_until.shift(back);
        self.first_answer_until.shift(back);
        self.last_view.iter_mut().for_each(|(then, _)| then.shift(back));
        self.lateness = None;
    }
}

impl Shift for Machine {
    /// It also blanks what is only shown.
    fn shift(&mut self, back: Duration) {
        self.lease.sent.shift(back);
        (self.unanswered, self.is_late) = (None, false);
        self.lateness = Lateness::since(self.lease.sent).asleep_until(self.lease.sent);
        if let supervisor::Phase::Terminating { kill_at, .. } = &mut self.phase {
            kill_at.shift(back);
        }
    }
}
