//! How servers are arranged: one server, a master behind Sentinel, or a cluster.

use std::time::Duration;

use super::node::{Node, Reply};
use super::scripts::Call;
use crate::report::Diagnostic;
use crate::rules::Failure;
use crate::store::Interrupt;

/// Finds the server that has a lock. Each lock is on one server at a time.
pub trait Topology: Send {
    /// Runs a script on the server that has its lock.
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure>;

    /// The server that ran the last script.
    fn last(&mut self) -> &mut Node;

    /// How long each of its servers may take to answer.
    fn io_timeout(&mut self) -> Duration {
        self.last().io_timeout
    }

    /// All servers that have locks. An error means that they cannot be found.
    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure>;

    /// A failure of one of its masters, with what the topology tells about it.
    fn explain(&self, failure: Failure) -> Failure {
        failure
    }

    /// Messages about the servers since the last call.
    fn take_diagnostics(&mut self) -> Vec<Diagnostic>;
}

/// One server, which has all locks.
impl Topology for Node {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        // One server has nowhere else to go, so only the failure in a refusal counts.
        Ok(self.run_script(call, interrupt)?)
    }

    fn last(&mut self) -> &mut Node {
        self
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        Ok(vec![self])
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.diagnostics)
    }
}
