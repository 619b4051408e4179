//! A cluster: each lock is on one of several masters. A node that does not have the lock answers
//! with MOVED or ASK, which name the node that does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::node::{Node, Reply};
use super::refusal::Refusal;
use super::scripts::Call;
use super::standby::{Answer, Question, Relief, Standbys, details, first_answer};
use super::topology::Topology;
use crate::report::Diagnostic;
use crate::rules::back_off::BackOff;
use crate::rules::failure::Failure;
use crate::rules::fault::Fault;
use crate::rules::instant::Instant;
use crate::store::Interrupt;
use crate::store::waiting::pause;
use crate::store::wire::{self, Address, Cmd, Endpoint, Value};

/// How many redirections in a row are followed before they count as a loop.
const MAX_REDIRECTIONS: u32 = 8;

/// The pause between two attempts while the lock's keys are divided between two nodes.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(5), Duration::from_millis(200));

/// The nodes known so far.
pub(in crate::store) struct Cluster {
    nodes: Vec<Node>,
    /// The indices of the nodes that have answered or were named by one that has. The others may be
    /// silent without anything being wrong with the cluster.
    known: BTreeSet<usize>,
    /// Where the masters listen, as a node says.
    question: Question<Vec<Endpoint>>,
    /// The index of the node to ask first.
    owner: usize,
    /// The index of the node that ran the last script, and whether that took an ASKING.
    last: (usize, bool),
    io_timeout: Duration,
    diagnostics: Vec<Diagnostic>,
}

/// What became of a script that was sent to a node.
enum Ran {
    Replied(Reply),
    Refused(Refusal),
    /// The node failed or is silent, but another one answers.
    Relieved {
        failure: Failure,
        by: usize,
    },
    /// Neither the node nor any of those asked beside it answers.
    Unanswered {
        failure: Failure,
        others: Vec<Failure>,
    },
}

impl Ran {
    /// Whether the script may have run, or may still run, although there is no reply.
    fn maybe_executed(&self) -> bool {
        match self {
            Self::Refused(Refusal::Failed(failure))
            | Self::Relieved { failure, .. }
            | Self::Unanswered { failure, .. } => failure.maybe_executed(),
            Self::Replied(_) | Self::Refused(_) => false,
        }
    }
}

impl Cluster {
    /// `nodes` are some nodes of the cluster, at least one. An error means that a TLS file cannot
    /// be used.
    pub(in crate::store) fn new(nodes: &[Address], io_timeout: Duration) -> Result<Self, String> {
        let nodes = nodes.iter().map(|node| Node::new(node.clone(), io_timeout, None));
        Ok(Self {
            nodes: nodes.collect::<Result<_, _>>()?,
            known: BTreeSet::new(),
            question: Arc::new(ask_for_masters),
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
    /// such nodes are asked beside it.
    fn run_at(
        &mut self,
        (at, asking): (usize, bool),
        call: &Call,
        absent: &[(usize, Failure)],
        interrupt: Interrupt<'_>,
    ) -> Ran {
        let (before, rest) = self.nodes.split_at_mut(at);
        let (node, after) = rest.split_at_mut(1);
        let is_new = |index: usize| {
            !self.known.contains(&index) && absent.iter().all(|(node, _)| *node != index)
        };
        let others = (at + 1..).zip(&*after).chain((0..).zip(&*before));
        let others = others.filter(|(index, _)| is_new(at) && is_new(*index)).collect();
        let standbys = Standbys::new(others, &self.question, self.io_timeout);
        let failure = match node[0].run_script(call, asking, standbys.beside(interrupt)) {
            Ok(reply) => return Ran::Replied(reply),
            Err(Refusal::Failed(failure))
                if standbys.were_asked() && may_pass_elsewhere(&failure) =>
            {
                failure
            }
            Err(refusal) => return Ran::Refused(refusal),
        };
        match standbys.relief(&failure, interrupt) {
            Relief::Answered { index, node, .. } => {
                let what = match failure.is_transient() {
                    true => failure.to_string(),
                    false => format!("silent, but {} answers", node.endpoint()),
                };
                self.diagnostic(at, &what);
                self.nodes[index] = *node;
                self.known.insert(index);
                Ran::Relieved { failure, by: index }
            }
            Relief::Interrupted => {
                Ran::Refused(Failure::Interrupted { sent: failure.maybe_executed() }.into())
            }
            Relief::None(failures) => Ran::Unanswered { failure, others: failures },
        }
    }

    /// Runs a script on the node that has its lock. `copies` receives the nodes that did not answer
    /// and may yet execute it, or have done so.
    fn find_and_run(
        &mut self,
        call: &Call,
        interrupt: Interrupt<'_>,
        copies: &mut Vec<usize>,
    ) -> Result<Reply, Failure> {
        // Bounds how long to wait for a migration, and for nodes that do not answer one after another.
        let until = Instant::now() + self.io_timeout;
        let (mut at, mut asking) = (self.owner, false);
        let (mut redirections, mut back_off) = (0, BACK_OFF);
        let mut another_answered = false;
        let mut absent = Vec::<(usize, Failure)>::new();
        loop {
            if let Some(known) = absent.iter().position(|(node, _)| *node == at) {
                let failure = absent.swap_remove(known).1;
                // Another node has redirected the request to this one.
                return Err(failure.while_others_answer());
            }
            let ran = self.run_at((at, asking), call, &absent, interrupt);
            if ran.maybe_executed() {
                copies.push(at);
            }
            let refusal = match ran {
                Ran::Replied(mut reply) => {
                    self.last = (at, asking);
                    self.known.insert(at);
                    reply.repeated |= copies.contains(&at);
                    return Ok(reply);
                }
                Ran::Relieved { failure, by } => {
                    // A node that was only silent is asked again if the other redirects to it.
                    if failure.is_transient() {
                        absent.push((at, failure));
                    }
                    self.owner = by;
                    (at, asking) = (by, false);
                    another_answered = true;
                    continue;
                }
                Ran::Unanswered { failure, mut others } => {
                    others.insert(0, failure);
                    return Err(none_of(others, another_answered));
                }
                Ran::Refused(refusal) => refusal,
            };
            if !matches!(refusal, Refusal::Failed(_)) {
                self.known.insert(at);
                another_answered = true;
            }
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
                    absent.push((at, failure));
                    // Another node may know which replica was promoted. If there is no time to ask it
                    // now, the next request does.
                    (at, asking) = match self.other_than(at, &absent) {
                        Some(other) if in_time || call.is_unawaited() => (other, false),
                        Some(other) => {
                            self.owner = other;
                            return Err(none_of(vec![absent.swap_remove(0).1], another_answered));
                        }
                        None => {
                            let (first, failure) = absent.swap_remove(0);
                            self.owner = first;
                            return Err(none_of(vec![failure], another_answered));
                        }
                    };
                    self.owner = at;
                }
                refusal => return Err(refusal.into()),
            }
        }
    }

    /// The masters that the first node to answer names.
    fn find_masters(&mut self) -> Result<BTreeSet<usize>, Failure> {
        let Self { nodes, question, .. } = self;
        let answer = first_answer(nodes, question, self.io_timeout, None);
        let Answer { index, value: masters, failures } = answer.map_err(|failures| {
            self.diagnostics.extend(details("node", &failures));
            none_of(failures, false)
        })?;
        self.known.insert(index);
        self.diagnostics.extend(details("node", &failures));
        masters.into_iter().map(|master| self.index_of(master)).collect()
    }
}

/// Where all masters listen, according to one node.
fn ask_for_masters(node: &mut Node, interrupt: Interrupt<'_>) -> Result<Vec<Endpoint>, Failure> {
    let slots = node.ask(wire::cmd("CLUSTER").arg("SLOTS").clone(), interrupt)?;
    let masters = masters_in(&slots).ok_or_else(|| node.unexpected_reply())?;
    masters.into_iter().map(|(host, port)| node.address().named(&host, port)).collect()
}

/// Whether another node may be of use although this one failed, or was left because it is silent.
fn may_pass_elsewhere(failure: &Failure) -> bool {
    failure.is_transient() || matches!(failure, Failure::Interrupted { .. })
}

/// The failure to report when these nodes failed: one that the user can fix, or else the first.
fn none_of(mut failures: Vec<Failure>, another_answered: bool) -> Failure {
    let worst = failures.iter().position(|f| matches!(f, Failure::Misconfigured { .. }));
    match failures.swap_remove(worst.unwrap_or(0)) {
        failure if another_answered => failure.while_others_answer(),
        failure => failure,
    }
}

/// Reads the reply to CLUSTER SLOTS. Each entry is `first slot, last slot, master, replica, …`,
/// where each server is `host, port, …`. Without a host, it is that of the node that answered.
pub(super) fn masters_in(slots: &Value) -> Option<Vec<(String, u16)>> {
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

    fn sleep(
        &mut self,
        command: Cmd,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Value, Failure> {
        let (at, asking) = self.last;
        match self.nodes[at].sleep(command, asking, at_most, interrupt) {
            // The next acquire finds the lock's new node.
            Err(Refusal::Elsewhere { .. } | Refusal::Moving { .. }) => Ok(Value::Nil),
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
