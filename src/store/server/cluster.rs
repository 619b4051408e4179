//! A cluster: each lock is on one of several masters. A node that does not have the lock answers
//! with MOVED or ASK, which name the node that does.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Duration;

use super::answers::Answers;
use super::node::{Node, Reply};
use super::refusal::{Redirection, Refusal};
use super::scripts::Call;
use super::topology::Topology;
use crate::report::Diagnostic;
use crate::rules::{BackOff, Failure, Instant};
use crate::store::Interrupt;
use crate::store::waiting::pause;
use crate::store::wire::{self, Address, Endpoint, Limit, Value};
use crate::system::poll::Interrupter;

/// How many redirections in a row are followed before they count as a loop.
const MAX_REDIRECTIONS: u32 = 8;

/// The pause between two attempts while the lock's keys are divided between two nodes.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(5), Duration::from_millis(200));

/// How long a node about which nothing is known may be silent before others are asked too.
const PATIENCE: Duration = Duration::from_millis(50);

/// The nodes known so far.
pub(in crate::store) struct Cluster {
    nodes: Vec<Node>,
    /// The indices of the nodes that have answered or were named by one that has. The others may be
    /// silent without anything being wrong with the cluster.
    known: BTreeSet<usize>,
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
        let nodes = nodes.iter().map(|node| Node::new(node.clone(), io_timeout, None));
        Ok(Self {
            nodes: nodes.collect::<Result<_, _>>()?,
            known: BTreeSet::new(),
            owner: 0,
            last: (0, false),
            io_timeout,
            diagnostics: Vec::new(),
        })
    }

    fn index_of(&mut self, endpoint: Endpoint) -> Result<usize, Failure> {
        let index = match self.nodes.iter().position(|node| *node.endpoint() == endpoint) {
            Some(index) => index,
            None => {
                let node = self.nodes[0].sibling(endpoint)?;
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.known.insert(index);
        Ok(index)
    }

    fn diagnostic(&mut self, at: usize, what: &str) {
        let diagnostic = Diagnostic::Detail(format!("{}: {what}", self.nodes[at].endpoint()));
        if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// The next node to ask: one that is known if there is any.
    fn other_than(&self, at: usize, absent: &[(usize, Failure)]) -> Option<usize> {
        let count = self.nodes.len();
        let mut others = (1..count)
            .map(|step| (at + step) % count)
            .filter(|other| absent.iter().all(|(node, _)| node != other));
        others.clone().find(|other| self.known.contains(other)).or_else(|| others.next())
    }

    /// Runs a script on one node. If nothing is known about that node yet and it is silent, other
    /// such nodes are asked whether they are there. The second value is one that answers instead.
    fn run_at(
        &mut self,
        (at, asking): (usize, bool),
        call: &Call,
        absent: &[(usize, Failure)],
        interrupt: Interrupt<'_>,
    ) -> (Result<Reply, Refusal>, Option<usize>) {
        let others = match self.known.contains(&at) {
            true => None,
            false => self.others_beside(at, absent),
        };
        let arrival = others.as_ref().map(|others| others.received.as_fd());
        let beside = arrival.map(|arrival| Interrupter::or(interrupt, arrival)).or(interrupt);
        let ran = self.nodes[at].run_script(call, asking, beside);
        if let Err(Refusal { failure: Failure::Interrupted { .. }, .. }) = ran
            && let Some((by, node, ())) = others.and_then(|others| others.received.next())
        {
            self.diagnostic(at, &format!("silent, but {} answers", node.endpoint()));
            self.nodes[by] = node;
            return (ran, Some(by));
        }
        (ran, None)
    }

    /// Asks the nodes about which nothing is known, unless this one answers soon. A node that
    /// refuses to answer is there, and its refusal is what the user must know.
    fn others_beside(&self, at: usize, absent: &[(usize, Failure)]) -> Option<Answers<()>> {
        let is_new = |index: usize| {
            index != at
                && !self.known.contains(&index)
                && absent.iter().all(|(node, _)| *node != index)
        };
        let others = self.nodes.iter().enumerate().filter(|(index, _)| is_new(*index));
        let others = others.filter_map(|(index, node)| Some((index, another(node).ok()?)));
        let others: Vec<_> = others.collect();
        let is_there = |node: &mut Node| match node.ask(wire::cmd("PING"), None) {
            Err(failure) if failure.is_transient() => None,
            _ => Some(()),
        };
        // If no thread can be started, the request itself still has its whole timeout.
        (!others.is_empty()).then(|| Answers::of(others, PATIENCE, is_there).ok()).flatten()
    }

    /// Runs a script on the node that has its lock. `copies` receives the nodes that did not answer
    /// and may yet execute it, or have done so.
    fn find_and_run(
        &mut self,
        call: &Call,
        interrupt: Interrupt<'_>,
        copies: &mut Vec<usize>,
    ) -> Result<Reply, Failure> {
        // Bounds how long to wait for a migration, and for nodes that do not answer one after
        // another.
        let until = Instant::now() + self.io_timeout;
        let (mut at, mut asking) = (self.owner, false);
        let (mut redirections, mut back_off) = (0, BACK_OFF);
        let mut another_answered = false;
        let mut absent = Vec::<(usize, Failure)>::new();
        loop {
            if let Some(known) = absent.iter().position(|(node, _)| *node == at) {
                let failure = absent.swap_remove(known).1;
                // Another node has redirected the request to this one.
                return Err(failure.if_others(true));
            }
            let (ran, answers_instead) = self.run_at((at, asking), call, &absent, interrupt);
            if ran.as_ref().is_err_and(|refusal| refusal.failure.maybe_executed()) {
                copies.push(at);
            }
            if let Some(by) = answers_instead {
                // If it redirects to the silent node, that is asked again.
                self.known.insert(by);
                self.owner = by;
                (at, asking) = (by, false);
                another_answered = true;
                continue;
            }
            let Refusal { failure, redirection } = match ran {
                Ok(mut reply) => {
                    self.last = (at, asking);
                    self.known.insert(at);
                    reply.repeated |= copies.contains(&at);
                    return Ok(reply);
                }
                Err(refusal) => refusal,
            };
            if redirection.is_some() {
                self.known.insert(at);
                another_answered = true;
            }
            let in_time = Instant::now() < until;
            match redirection {
                Some(Redirection::Elsewhere { node, asking: ask })
                    if redirections < MAX_REDIRECTIONS =>
                {
                    redirections += 1;
                    let way = if ask { "ASK" } else { "MOVED" };
                    self.diagnostic(at, &format!("{way} {node}"));
                    (at, asking) = (self.index_of(node)?, ask);
                    if !ask {
                        self.owner = at;
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
                    (at, asking, redirections) = (self.owner, false, 0);
                }
                None if failure.is_transient() => {
                    self.diagnostic(at, &failure.to_string());
                    absent.push((at, failure));
                    // Another node may know which replica was promoted. If there is no time to ask
                    // it now, the next request does.
                    match self.other_than(at, &absent) {
                        Some(other) if in_time || call.expects_no_reply => {
                            (self.owner, at, asking) = (other, other, false);
                        }
                        other => {
                            let (first, failure) = absent.swap_remove(0);
                            self.owner = other.unwrap_or(first);
                            return Err(failure.if_others(another_answered));
                        }
                    }
                }
                _ => return Err(failure),
            }
        }
    }

    /// The masters that the first node to answer names.
    fn find_masters(&mut self) -> Result<BTreeSet<usize>, Failure> {
        let nodes = self.nodes.iter().map(another).collect::<Result<Vec<_>, _>>()?;
        let nodes = nodes.into_iter().enumerate().collect();
        let answers = Answers::of(nodes, Duration::ZERO, |node| Some(ask_for_masters(node)))?;
        let limit = Limit::new(self.io_timeout, None);
        let first = answers.first("node", &mut self.nodes, &mut self.diagnostics, limit);
        let (index, masters) = first.map_err(Failure::worst)?;
        self.known.insert(index);
        masters.into_iter().map(|master| self.index_of(master)).collect()
    }
}

/// The same node on another connection.
fn another(node: &Node) -> Result<Node, Failure> {
    node.sibling(node.endpoint().clone())
}

/// Where all masters listen, according to one node.
fn ask_for_masters(node: &mut Node) -> Result<Vec<Endpoint>, Failure> {
    let slots = node.ask(wire::cmd("CLUSTER").arg("SLOTS").clone(), None)?;
    let masters = masters_in(&slots).ok_or_else(|| node.unexpected_reply())?;
    masters.into_iter().map(|(host, port)| node.address().named(&host, port)).collect()
}

/// Reads the reply to CLUSTER SLOTS. Each entry is `first slot, last slot, master, replica, …`,
/// where each server is `host, port, …`. Without a host, it is that of the node that answered.
pub fn masters_in(slots: &Value) -> Option<Vec<(String, u16)>> {
    let Value::Array(slots) = slots else { return None };
    let master = |slot: &Value| -> Option<(String, u16)> {
        let Value::Array(slot) = slot else { return None };
        let Value::Array(master) = slot.get(2)? else { return None };
        let port = match master.get(1)? {
            Value::Int(port) => u16::try_from(*port).ok()?,
            _ => return None,
        };
        match master.first()? {
            Value::BulkString(host) => Some((String::from_utf8_lossy(host).into_owned(), port)),
            _ => Some((String::new(), port)),
        }
    };
    slots.iter().map(master).collect()
}

impl Topology for Cluster {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        let mut copies = Vec::new();
        self.find_and_run(call, interrupt, &mut copies).map_err(|failure| {
            match copies.is_empty() || failure.maybe_executed() {
                true => failure,
                false => failure.but_maybe_executed(),
            }
        })
    }

    fn last(&mut self) -> (&mut Node, bool) {
        let (at, asking) = self.last;
        (&mut self.nodes[at], asking)
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        let masters = self.find_masters()?;
        let nodes = self.nodes.iter_mut().enumerate();
        Ok(nodes.filter(|(index, _)| masters.contains(index)).map(|(_, node)| node).collect())
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        let mut diagnostics = std::mem::take(&mut self.diagnostics);
        diagnostics.extend(self.nodes.iter_mut().flat_map(Node::take_diagnostics));
        diagnostics
    }
}
