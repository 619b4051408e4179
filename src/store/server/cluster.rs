//! A cluster: each lock is on one of several masters. A node that does not have the lock answers
//! with MOVED or ASK, which name the node that does.

use std::collections::BTreeSet;
use std::time::Duration;

use super::node::{Node, Reply};
use super::refusal::Refusal;
use super::scripts::Call;
use super::topology::Topology;
use crate::report::{Diagnostic, Fault};
use crate::store::waiting::pause;
use crate::store::wire::{self, Address, Cmd, Endpoint, Value};
use crate::store::{Failure, Interrupt};
use crate::system::back_off::BackOff;
use crate::system::clock::Instant;

/// How many redirections in a row are followed before they count as a loop.
const MAX_REDIRECTIONS: u32 = 8;

/// The pause between two attempts while the lock's keys are divided between two nodes.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(5), Duration::from_millis(200));

/// The nodes known so far.
pub(in crate::store) struct Cluster {
    nodes: Vec<Node>,
    /// The index of the node to ask first.
    owner: usize,
    /// The index of the node that ran the last script, and whether that took an ASKING.
    last: (usize, bool),
    io_timeout: Duration,
    diagnostics: Vec<Diagnostic>,
}

impl Cluster {
    /// `nodes` are some nodes of the cluster, at least one. An error means that a TLS file cannot
    /// be used.
    pub(in crate::store) fn new(nodes: &[Address], io_timeout: Duration) -> Result<Self, String> {
        // Until one node answers, all share the timeout of one reply.
        let each = io_timeout / u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let nodes = nodes.iter().map(|node| Node::new(node.clone(), each, None));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { nodes, owner: 0, last: (0, false), io_timeout, diagnostics: Vec::new() })
    }

    fn index_of(&mut self, endpoint: Endpoint) -> Result<usize, Failure> {
        let index = match self.nodes.iter().position(|node| *node.endpoint() == endpoint) {
            Some(index) => index,
            None => {
                let node = self.nodes[0].sibling(endpoint);
                let node = node.map_err(|what| Failure::misconfigured(Fault::new(what)));
                self.nodes.push(node?);
                self.nodes.len() - 1
            }
        };
        // There is no other node to ask, so this one gets the whole timeout.
        self.nodes[index].set_io_timeout(self.io_timeout);
        Ok(index)
    }

    fn diagnostic(&mut self, at: usize, what: &str) {
        let diagnostic = Diagnostic::Detail(format!("{}: {what}", self.nodes[at].endpoint()));
        if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// The masters that the first node to answer names.
    fn find_masters(&mut self) -> Result<BTreeSet<usize>, Failure> {
        let mut first_failure = None;
        for index in 0..self.nodes.len() {
            let slots = wire::cmd("CLUSTER").arg("SLOTS").clone();
            match self.nodes[index].ask(slots, None) {
                Ok(slots) => {
                    let here = self.nodes[index].endpoint().clone();
                    let masters = masters_in(&slots, &here);
                    let masters = masters.ok_or_else(|| self.nodes[index].unexpected_reply())?;
                    return masters.into_iter().map(|master| self.index_of(master)).collect();
                }
                Err(refusal) => {
                    let failure = Failure::from(refusal);
                    self.diagnostic(index, &failure.to_string());
                    first_failure.get_or_insert(failure);
                }
            }
        }
        Err(first_failure
            .unwrap_or_else(|| Failure::Unavailable(Fault::new("no cluster node is known"))))
    }
}

/// Reads the reply to CLUSTER SLOTS. Each entry is `first slot, last slot, master, replica, …`,
/// where each server is `host, port, …`. An empty host means the host of the node that answered.
pub(super) fn masters_in(slots: &Value, here: &Endpoint) -> Option<Vec<Endpoint>> {
    let Value::Array(slots) = slots else { return None };
    let master = |slot: &Value| -> Option<Endpoint> {
        let Value::Array(slot) = slot else { return None };
        let Value::Array(master) = slot.get(2)? else { return None };
        let port = match master.get(1)? {
            Value::Int(port) => u16::try_from(*port).ok()?,
            _ => return None,
        };
        let host = match (master.first()?, here) {
            (Value::BulkString(host), _) if !host.is_empty() && host != b"?" => {
                String::from_utf8(host.clone()).ok()?
            }
            (_, Endpoint::Tcp { host, .. }) => host.clone(),
            (_, Endpoint::Unix(_)) => return None,
        };
        Some(Endpoint::Tcp { host, port })
    };
    slots.iter().map(master).collect()
}

impl Topology for Cluster {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        // Bounds how long to wait for a migration; each reply has its own timeout.
        let until = Instant::now() + self.io_timeout;
        let (mut at, mut asking) = (self.owner, false);
        let (mut redirections, mut back_off) = (0, BACK_OFF);
        let mut absent = Vec::<(usize, Failure)>::new();
        loop {
            if let Some(known) = absent.iter().position(|(node, _)| *node == at) {
                let failure = absent.swap_remove(known).1;
                // Another node has redirected the request to this one.
                return Err(if redirections > 0 { failure.while_others_answer() } else { failure });
            }
            let refusal = match self.nodes[at].run_script(call, asking, interrupt) {
                Ok(reply) => {
                    self.last = (at, asking);
                    self.nodes[at].set_io_timeout(self.io_timeout);
                    return Ok(reply);
                }
                Err(refusal) => refusal,
            };
            let in_time = Instant::now() < until;
            match refusal {
                Refusal::Elsewhere { node, asking: ask, .. } if redirections < MAX_REDIRECTIONS => {
                    redirections += 1;
                    let way = if ask { "ASK" } else { "MOVED" };
                    self.diagnostic(at, &format!("{way} {node}"));
                    (at, asking) = (self.index_of(node)?, ask);
                    if !ask {
                        self.owner = at;
                    }
                }
                Refusal::Elsewhere { .. } => {
                    let fault = Fault::new("cluster nodes redirect in circles");
                    return Err(Failure::Unavailable(fault.with_remedy("try again shortly")));
                }
                // Retry until all keys have arrived on one node.
                Refusal::Moving { .. } if in_time => {
                    self.diagnostic(at, "is moving the lock's keys");
                    pause(back_off.pause(), interrupt)?;
                    (at, asking, redirections) = (self.owner, false, 0);
                }
                Refusal::Failed(failure) if failure.is_transient() => {
                    self.diagnostic(at, &failure.to_string());
                    // Another node may know which replica was promoted.
                    self.owner = (at + 1) % self.nodes.len();
                    absent.push((at, failure));
                    (at, asking) = (self.owner, false);
                }
                refusal => return Err(refusal.into()),
            }
        }
    }

    fn sleep(
        &mut self,
        command: Cmd,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Failure> {
        let (at, asking) = self.last;
        match self.nodes[at].sleep(command, asking, at_most, interrupt) {
            // The next acquire finds the lock's new node.
            Err(Refusal::Elsewhere { .. } | Refusal::Moving { .. }) => Ok(()),
            slept => Ok(slept?),
        }
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        let masters = self.find_masters()?;
        let nodes = self.nodes.iter_mut().enumerate();
        Ok(nodes.filter(|(index, _)| masters.contains(index)).map(|(_, node)| node).collect())
    }

    fn database(&self) -> u32 {
        0
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        let mut diagnostics = std::mem::take(&mut self.diagnostics);
        diagnostics.extend(self.nodes.iter_mut().flat_map(Node::take_diagnostics));
        diagnostics
    }
}
