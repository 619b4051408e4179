//! How servers are arranged: one server, a master behind Sentinel, or a cluster.

use std::time::Duration;

use super::node::{Node, Reply};
use super::scripts::Call;
use crate::report::Diagnostic;
use crate::rules::Failure;
use crate::store::Interrupt;
use crate::store::wire::{Cmd, Value};

/// Finds the server that has a lock. Each lock is on one server at a time.
pub(in crate::store) trait Topology: Send {
    /// Runs a script on the server that has its lock.
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure>;

    /// Runs a blocking command for `at_most` on the server that ran the last script, and returns
    /// its reply. Without a connection it returns `Value::Nil` at once.
    fn sleep(
        &mut self,
        command: Cmd,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Value, Failure>;

    /// Runs a blocking command like `sleep`, and then a script, without a round trip in between.
    /// Returns `None` if the script did not run. By default it never does.
    fn sleep_and_run(
        &mut self,
        command: Cmd,
        _call: &Call,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Reply>, Failure> {
        self.sleep(command, at_most, interrupt).map(|_| None)
    }

    /// All servers that have locks. An error means that they cannot be found.
    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure>;

    /// The number of the database that the locks are in.
    fn database(&self) -> u32;

    /// Messages about the servers since the last call.
    fn take_diagnostics(&mut self) -> Vec<Diagnostic>;
}
