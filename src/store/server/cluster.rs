//! A cluster: each lock is on one of several masters. A node that does not have the lock answers
//! with MOVED or ASK, which name the node that does.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::node::{Node, Reply};
use super::race::first;
use super::refusal::{Redirection, Refusal};
use super::scripts::Call;
use super::topology::Topology;
use crate::report::Diagnostic;
use crate::rules::{BackOff, Delivery, Failure, Instant, Key};
use crate::store::blocking::pause;
use crate::store::wire::{self, Endpoint, Limit, Peer, Value};
use crate::store::{Interrupt, NEVER};

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// The hash slot of a key: CRC-16/XMODEM of its tag, as in the Redis Cluster specification.
pub(in crate::store) fn slot_of(key: &Key) -> u16 {
    let step = |crc: u16, bit: bool| {
        let is_set = (crc >> 15 == 1) ^ bit;
        crc << 1 ^ if is_set { 0x1021 } else { 0 }
    };
    let bits = key.tag().bytes().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1));
    bits.fold(0, step) % SLOTS
}

/// How many redirections in a row are followed before they count as a loop.
const MAX_REDIRECTIONS: u32 = 8;

/// The pause between two attempts while the lock's keys are divided between two nodes.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(5), Duration::from_millis(200));

/// The nodes known so far.
pub(in crate::store) struct Cluster {
    nodes: Vec<Node>,
    /// The index of the node to ask first; `None` if it is unknown which of them answer.
    owner: Option<usize>,
    /// The index of the node that ran the last script.
    last: usize,
    io_timeout: Duration,
    diagnostics: Vec<Diagnostic>,
}

impl Cluster {
    /// `nodes` are some nodes of the cluster, at least one.
    pub(in crate::store) fn new(nodes: &[Peer], io_timeout: Duration) -> Self {
        let node = |it: &Peer| Node::new(nodes[0].at(it.endpoint.clone()), io_timeout, None);
        Self {
            nodes: nodes.iter().map(node).collect(),
            owner: None,
            last: 0,
            io_timeout,
            diagnostics: Vec::new(),
        }
    }

    fn index_of(&mut self, endpoint: Endpoint) -> usize {
        let known = self.nodes.iter().position(|node| *node.endpoint() == endpoint);
        known.unwrap_or_else(|| {
            self.nodes.push(self.nodes[0].sibling(endpoint));
            self.nodes.len() - 1
        })
    }

    fn diagnostic(&mut self, at: usize, what: &str) {
        let diagnostic = Diagnostic::Detail(format!("{}: {what}", self.nodes[at].endpoint()));
        if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// The node to ask first. If that is unknown, it is the first to answer of those that are not
    /// `absent`, because some may be silent without anything being wrong with the cluster.
    fn owner(
        &mut self,
        absent: &[(usize, Failure)],
        limit: Limit<'_>,
    ) -> Result<usize, Vec<Failure>> {
        if let Some(owner) = self.owner {
            return Ok(owner);
        }
        let mut others = self.others();
        others.retain(|(index, _)| absent.iter().all(|(node, _)| node != index));
        // A node that refuses to answer is there, and its refusal is what the user must know.
        let is_there =
            |node: &mut Node| match node.ask(wire::cmd("PING"), NEVER).map_err(Failure::from) {
                Err(failure) if failure.is_transient() => Err(failure),
                _ => Ok(()),
            };
        let owner = match &others[..] {
            [(only, _)] => *only,
            _ => {
                let (index, node, ()) =
                    first("node", others, is_there, &mut self.diagnostics, limit)?;
                self.nodes[index] = node;
                index
            }
        };
        self.owner = Some(owner);
        Ok(owner)
    }

    /// All nodes, on other connections.
    fn others(&self) -> Vec<(usize, Node)> {
        let nodes = self.nodes.iter().map(|node| node.sibling(node.endpoint().clone()));
        nodes.enumerate().collect()
    }

    /// Runs a script on the node that has its lock. `may_run`: a node did not answer, and may yet
    /// execute it, or has done so.
    fn find_and_run(
        &mut self,
        call: &Call,
        interrupt: Interrupt<'_>,
        may_run: &mut bool,
    ) -> Result<Reply, Failure> {
        // Bounds how long to wait for a migration, and for nodes that do not answer one after
        // another.
        let limit = Limit::of_attempt(self.io_timeout, interrupt);
        let mut absent = Vec::<(usize, Failure)>::new();
        let mut at = self.owner(&absent, limit).map_err(|failures| {
            Failure::worst(failures)
                .reworded(|why| format!("no node of the cluster is usable: {why}"))
        })?;
        let (mut is_importing, mut redirections, mut back_off) = (false, 0, BACK_OFF);
        loop {
            if let Some(known) = absent.iter().position(|(node, _)| *node == at) {
                // Another node has redirected the request to this one.
                return Err(self.explain(absent.swap_remove(known).1));
            }
            self.nodes[at].is_importing = is_importing;
            let Refusal { failure, redirection, .. } =
                match self.nodes[at].run_script(call, interrupt) {
                    Ok(reply) => {
                        self.last = at;
                        return Ok(reply);
                    }
                    Err(refusal) => refusal,
                };
            *may_run |= failure.maybe_executed();
            let in_time = Instant::now() < limit.until;
            match redirection {
                Some(Redirection::Elsewhere { node, is_importing: asks })
                    if redirections < MAX_REDIRECTIONS =>
                {
                    redirections += 1;
                    let way = if asks { "ASK" } else { "MOVED" };
                    self.diagnostic(at, &format!("{way} {node}"));
                    (at, is_importing) = (self.index_of(node), asks);
                    if !asks {
                        self.owner = Some(at);
                    }
                }
                Some(Redirection::Elsewhere { .. }) => {
                    let what = "cluster nodes redirect in circles";
                    return Err(Failure::unavailable(what, "try again shortly"));
                }
                // Retry until all keys have arrived on one node.
                Some(Redirection::Moving) if in_time => {
                    self.diagnostic(at, "is moving the lock's keys");
                    pause(back_off.pause(), interrupt)?;
                    (at, is_importing, redirections) = (self.owner.unwrap_or(at), false, 0);
                }
                None if failure.is_transient() => {
                    self.diagnostic(at, &failure.to_string());
                    absent.push((at, failure));
                    self.owner = None;
                    // Another node may know which replica was promoted. If there is no time to ask
                    // it now, the next request does.
                    match in_time.then(|| self.owner(&absent, limit)) {
                        Some(Ok(other)) => (at, is_importing) = (other, false),
                        _ => return Err(absent.swap_remove(0).1),
                    }
                }
                _ => return Err(failure),
            }
        }
    }

    /// The masters that the first node to answer names.
    fn find_masters(&mut self) -> Result<BTreeSet<usize>, Failure> {
        let limit = Limit::of_attempt(self.io_timeout, NEVER);
        let answer = first("node", self.others(), ask_for_masters, &mut self.diagnostics, limit);
        let (index, node, masters) = answer.map_err(Failure::worst)?;
        self.nodes[index] = node;
        Ok(masters.into_iter().map(|master| self.index_of(master)).collect())
    }
}

/// Where all masters listen, according to one node.
fn ask_for_masters(node: &mut Node) -> Result<Vec<Endpoint>, Failure> {
    let slots = node.ask(wire::cmd("CLUSTER").arg("SLOTS").clone(), NEVER)?;
    // By the specification, a cluster has at most 1000.
    let masters = masters_in(&slots).filter(|masters| {
        masters.iter().map(|(_, host, port)| (host, port)).collect::<BTreeSet<_>>().len() <= 1_000
    });
    let masters = masters.ok_or_else(|| node.unexpected_reply())?;
    let named: BTreeSet<_> = masters.into_iter().map(|(_, host, port)| (host, port)).collect();
    named.into_iter().map(|(host, port)| node.peer.named(&host, port)).collect()
}

/// Reads the reply to CLUSTER SLOTS. Each entry is `first slot, last slot, master, replica, …`,
/// where each server is `host, port, …`. Without a host, it is that of the node that answered.
/// Returns the slots, the host and the port of each master.
pub fn masters_in(slots: &Value) -> Option<Vec<(RangeInclusive<u16>, String, u16)>> {
    let Value::Array(slots) = slots else { return None };
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let master = |slot: &Value| {
        let Value::Array(slot) = slot else { return None };
        let slots = number(slot.first()?)?..=number(slot.get(1)?)?;
        let Value::Array(master) = slot.get(2)? else { return None };
        let port = number(master.get(1)?)?;
        match master.first()? {
            Value::BulkString(host) => {
                Some((slots, String::from_utf8_lossy(host).into_owned(), port))
            }
            _ => Some((slots, String::new(), port)),
        }
    };
    slots.iter().map(master).collect()
}

impl Topology for Cluster {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        if call.expects_no_reply {
            // It follows an earlier request, wherever that went.
            let nodes = self.nodes.iter_mut();
            nodes.for_each(|node| drop(node.run_script(call, interrupt)));
            return Err(Failure::interrupted(Delivery::Pending));
        }
        let mut may_run = false;
        self.find_and_run(call, interrupt, &mut may_run).map_err(|failure| {
            if may_run && !failure.maybe_executed() {
                failure.but_maybe_executed()
            } else {
                failure
            }
        })
    }

    fn last(&mut self) -> &mut Node {
        &mut self.nodes[self.last]
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        let masters = self.find_masters()?;
        let nodes = self.nodes.iter_mut().enumerate();
        Ok(nodes.filter(|(index, _)| masters.contains(index)).map(|(_, node)| node).collect())
    }

    fn explain(&self, failure: Failure) -> Failure {
        let remedy = "wait for a failover, or check CLUSTER NODES on another node";
        failure.of_master("the cluster has not replaced it yet", remedy)
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        let mut diagnostics = std::mem::take(&mut self.diagnostics);
        diagnostics.extend(self.nodes.iter_mut().flat_map(Node::take_diagnostics));
        diagnostics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_hash_slot_that_redis_gives_it() {
        let key = |name: &str| Key::new(&"".parse().unwrap(), &name.parse().unwrap());
        let tagged = Key::new(&"a{foo}b".parse().unwrap(), &"L".parse().unwrap());
        let slots = [&key("123456789"), &key("foo"), &tagged].map(slot_of);
        assert_eq!(slots, [12_739, 12_182, 12_182]);
    }
}
