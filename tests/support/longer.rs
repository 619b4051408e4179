//! A bound on time that a busy machine does not break: what is quick ends before something slow
//! that runs beside it, under the same load.

use std::process::Command;

use tempfile::TempDir;

use super::{Running, rlock};

/// An rlock that waits in vain for so long, in a directory that nothing else uses.
pub struct LongerWait {
    waiter: Running,
    duration: &'static str,
    _locks: TempDir,
}

impl LongerWait {
    /// Begins to wait for `duration`, in rlock's own notation.
    #[track_caller]
    pub fn of(duration: &'static str) -> Self {
        let locks = tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap();
        let url = format!("local:{}", locks.path().display());
        let at = |arguments: &[&str]| -> Command {
            let mut command = rlock(arguments);
            command.env("RLOCK_URL", &url);
            command
        };
        let held = super::run(&mut at(&["acquire", "--ttl", "1h", "L"]));
        assert!(held.status.success(), "{held:?}");
        let mut waiter = Running::start(&mut at(&["exec", "-w", duration, "L", "true"]));
        waiter.told("waiting");
        Self { waiter, duration, _locks: locks }
    }

    /// Fails if the wait is over, so that what came before this call was not quick.
    #[track_caller]
    pub fn is_not_over(&mut self) {
        assert!(self.waiter.process.is_running(), "it took longer than {}", self.duration);
    }
}
