//! One server, which has all the locks.

use std::time::Duration;

use super::node::{Node, Question, Reply};
use super::scripted::Servers;
use super::scripts::Call;
use crate::report::Diagnostic;
use crate::store::wire::{Address, Cmd};
use crate::store::{Failure, Interrupt};

/// One server.
pub(in crate::store) struct Single {
    pub(in crate::store) node: Node,
    database: u32,
}

impl Single {
    /// An error is a file for TLS that cannot be used.
    pub(in crate::store) fn new(
        address: Address,
        io_timeout: Duration,
        question: Option<Question>,
    ) -> Result<Self, String> {
        let database = address.database;
        Ok(Self { node: Node::new(address, io_timeout, question)?, database })
    }
}

impl Servers for Single {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        Ok(self.node.run(call, false, interrupt)?)
    }

    fn sleep(
        &mut self,
        command: Cmd,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Failure> {
        Ok(self.node.sleep(command, false, at_most, interrupt)?)
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        Ok(vec![&mut self.node])
    }

    fn database(&self) -> u32 {
        self.database
    }

    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        self.node.diagnostics()
    }
}
