//! A bound on time that a busy machine does not break: what is quick ends before something slow
//! that runs beside it, under the same load.

use super::{Running, at};

/// An rlock that waits in vain for so long.
pub struct LongerWait {
    waiter: Running,
    duration: &'static str,
}

impl LongerWait {
    /// Begins to wait for `duration`, in rlock's own notation.
    #[track_caller]
    pub fn of(duration: &'static str) -> Self {
        // Nothing listens there.
        let exec = format!("exec -w {duration} L true");
        let waiter = Running::start(&mut at("redis://127.0.0.1:1", &exec)).tells("retrying");
        Self { waiter, duration }
    }

    /// Fails if the wait is over, so that what came before this call was not quick.
    #[track_caller]
    pub fn is_not_over(&mut self) {
        assert!(self.waiter.process.is_running(), "it took longer than {}", self.duration);
    }
}
