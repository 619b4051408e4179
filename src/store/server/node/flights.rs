//! Several pipelines in flight on one connection, so that the server runs the next one while rlock
//! processes the replies to the one before.

use std::collections::VecDeque;

use super::Node;
use crate::store::server::refusal::Refusal;
use crate::store::wire::{Cmd, Value};

/// Pipelines in flight on one connection. If it breaks, they are lost, and nothing sends them again.
/// The next exchange on the connection drops replies that were not received.
pub(in crate::store) struct Flights<'a> {
    node: &'a mut Node,
    /// The number of commands in each pipeline, the oldest pipeline first.
    sizes: VecDeque<usize>,
}

impl<'a> Flights<'a> {
    pub(super) fn new(node: &'a mut Node) -> Self {
        Self { node, sizes: VecDeque::new() }
    }

    /// Sends one pipeline of read-only commands.
    pub(in crate::store) fn send(&mut self, mut commands: Vec<Cmd>) -> Result<(), Refusal> {
        commands.splice(0..0, self.node.select());
        self.sizes.push_back(commands.len());
        let send =
            self.node.link.on_connection(|connection, limit| connection.send(&commands, limit));
        Ok(send?)
    }

    /// Receives the replies to the oldest pipeline in flight; none if there is none. Error replies
    /// stay among the replies.
    pub(in crate::store) fn receive(&mut self) -> Result<Vec<Value>, Refusal> {
        let Some(size) = self.sizes.pop_front() else { return Ok(Vec::new()) };
        let later = self.sizes.iter().sum();
        let replies = self
            .node
            .link
            .on_connection(|connection, limit| connection.receive(size, later, limit));
        self.node.selected(replies?)
    }

    pub(in crate::store) fn node(&self) -> &Node {
        self.node
    }
}
