//! One server, which has all locks.

use std::time::Duration;

use super::node::{Node, Probe, Reply};
use super::redis_store::RedisStore;
use super::scripts::Call;
use super::topology::Topology;
use crate::report::Diagnostic;
use crate::rules::Failure;
use crate::rules::quorum::Run;
#[cfg(test)]
use crate::store::wire;
use crate::store::wire::{Address, Cmd, Endpoint, Value};
use crate::system::poll::Interrupt;
use crate::system::wakeup::Wakeup;

pub(in crate::store) struct Standalone {
    pub(super) node: Node,
    database: u32,
}

impl Standalone {
    /// `io_timeout` bounds each connection attempt and each reply. An error means that a TLS file
    /// cannot be used.
    pub(in crate::store) fn new(
        address: Address,
        io_timeout: Duration,
        probe: Option<Probe>,
    ) -> Result<Self, String> {
        let database = address.database;
        Ok(Self { node: Node::new(address, io_timeout, probe)?, database })
    }
}

impl RedisStore<Standalone> {
    /// The run of the server program that answered last; `None` before the first answer, and
    /// without `Probe::Run`.
    pub(in crate::store) fn server_run(&self) -> Option<&Run> {
        self.topology.node.run()
    }

    pub(in crate::store) fn set_withdrawal(&mut self, withdrawal: Option<Wakeup>) {
        self.topology.node.set_withdrawal(withdrawal);
    }

    pub(in crate::store) fn endpoint(&self) -> &Endpoint {
        self.topology.node.endpoint()
    }
}

#[cfg(test)]
impl RedisStore<Standalone> {
    /// A store whose server takes the time from a key.
    pub(in crate::store) fn on_a_test_clock(address: Address, io_timeout: Duration) -> Self {
        let server =
            Standalone::new(address, io_timeout, None).expect("there is no TLS to prepare");
        let mut store = Self::new(server, 0);
        store.test_clock = true;
        store
    }

    pub(in crate::store) fn send_one(&mut self, command: Cmd) {
        assert!(self.topology.node.ask(command, None).is_ok());
    }

    pub(in crate::store) fn has_key(&mut self, key: &str) -> bool {
        let found = self.topology.node.ask(wire::cmd("EXISTS").arg(key).to_owned(), None);
        matches!(found, Ok(Value::Int(1)))
    }
}

impl Topology for Standalone {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        Ok(self.node.run_script(call, false, interrupt)?)
    }

    fn sleep(
        &mut self,
        command: Cmd,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Value, Failure> {
        Ok(self.node.sleep(command, false, at_most, interrupt)?)
    }

    fn sleep_and_run(
        &mut self,
        command: Cmd,
        call: &Call,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Reply>, Failure> {
        Ok(self.node.sleep_and_run(command, call, at_most, interrupt)?)
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        Ok(vec![&mut self.node])
    }

    fn database(&self) -> u32 {
        self.database
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        self.node.take_diagnostics()
    }
}
