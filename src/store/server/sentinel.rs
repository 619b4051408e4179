//! The master that Redis Sentinel names. A sentinel is asked before every request, because a master
//! that was frozen during a failover still believes that it is the master when it resumes.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::node::{Node, Probe, Reply};
use super::race::first;
use super::refusal::Refusal;
use super::scripts::Call;
use super::topology::Topology;
use crate::report::Diagnostic;
use crate::rules::{Failure, FailureKind};
use crate::store::wire::{self, Endpoint, Limit, Peer, Value};
use crate::store::{Interrupt, NEVER};

/// The sentinels of a service, and its master.
pub(in crate::store) struct Sentinel {
    sentinels: Vec<Node>,
    service: Arc<str>,
    master: Node,
    io_timeout: Duration,
    diagnostics: Vec<Diagnostic>,
}

impl Sentinel {
    /// `master` has the credentials and the database of the master; its endpoint is unknown until a
    /// sentinel answers. `io_timeout` bounds the time that all sentinels together take, and each
    /// connection attempt and each reply of the master.
    pub(in crate::store) fn new(
        sentinels: &[Peer],
        service: &str,
        master: &Peer,
        io_timeout: Duration,
    ) -> Self {
        let sentinel =
            |it: &Peer| Node::new(sentinels[0].at(it.endpoint.clone()), io_timeout, None);
        Self {
            sentinels: sentinels.iter().map(sentinel).collect(),
            service: service.into(),
            master: Node::new(master.clone(), io_timeout, Some(Probe::Role)),
            io_timeout,
            diagnostics: Vec::new(),
        }
    }

    /// The master that the first sentinel to answer names, except for one that does not serve.
    fn master(&mut self, except: Option<Endpoint>, limit: Limit<'_>) -> Result<&mut Node, Failure> {
        let mut asked = Vec::new();
        for (index, sentinel) in self.sentinels.iter_mut().enumerate() {
            let another = sentinel.sibling(sentinel.endpoint().clone());
            asked.push((index, mem::replace(sentinel, another)));
        }
        let service = Arc::clone(&self.service);
        let question = move |sentinel: &mut Node| match ask(sentinel, &service) {
            Ok(master) if except.as_ref() == Some(&master) => Err(not_a_master(&master)),
            answer => answer,
        };
        let answer = first("sentinel", asked, question, &mut self.diagnostics, limit);
        let (index, sentinel, master) =
            answer.map_err(|failures| none_of(failures, &self.service, self.sentinels.len()))?;
        if *self.master.endpoint() != master {
            let what = format!("sentinel {}: {master} is the master", sentinel.endpoint());
            self.diagnostics.push(Diagnostic::Detail(what));
            self.master = self.master.sibling(master);
        }
        self.sentinels[index] = sentinel;
        Ok(&mut self.master)
    }
}

/// Where the master of the service listens, according to one sentinel.
pub(in crate::store) fn ask(sentinel: &mut Node, service: &str) -> Result<Endpoint, Failure> {
    let question = wire::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service).clone();
    let answer = sentinel.ask(question, NEVER)?;
    match answer {
        Value::Nil => {
            let what =
                format!("sentinel {} does not know service '{service}'", sentinel.endpoint());
            let failure = Failure::misconfigured(what, "correct the service name in the URL");
            // One that was restarted without its configuration does not know it for a while.
            Err(failure.once_served(sentinel.peer.has_served()))
        }
        answer => {
            sentinel.peer.note_served();
            let address = wire::from_redis_value::<(String, u16)>(answer);
            let (host, port) = address.map_err(|_| sentinel.unexpected_reply())?;
            sentinel.peer.named(&host, port)
        }
    }
}

/// The failure to report when none of `count` sentinels names a master: an interrupt, one that the
/// user can fix, or else the first.
fn none_of(failures: Vec<Failure>, service: &str, count: usize) -> Failure {
    let none = "no sentinel returned the address of the master of";
    let reword = |why: &str| format!("{none} {service} ({count} asked): {why}");
    let failure = Failure::worst(failures);
    match failure.kind {
        FailureKind::Misconfigured | FailureKind::Interrupted => failure,
        // None of them has answered.
        FailureKind::Unreachable => {
            let fault = failure.fault.reworded(reword).with_remedy("check the sentinels");
            Failure::new(FailureKind::Unreachable, fault)
        }
        _ => failure.outlasted().reworded(reword),
    }
}

fn not_a_master(server: &Endpoint) -> Failure {
    let what = format!("{server} is not a master yet, although a sentinel reports it as one");
    Failure::unavailable(what, "try again when the failover has ended")
}

impl Topology for Sentinel {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        if call.expects_no_reply {
            // It follows an earlier request, wherever that went.
            return Ok(self.master.run_script(call, interrupt)?);
        }
        let time = call.time(self.io_timeout);
        let master = self.master(None, Limit::of_attempt(time, interrupt))?;
        let mut reply = master.run_script(call, interrupt);
        let named = self.master.endpoint().clone();
        // During a failover, another sentinel may already name the new master, and one may be wrong. A
        // silent one must not double the time of each attempt.
        let is_elsewhere = |refusal: &Refusal| {
            let failure = &refusal.failure;
            refusal.is_not_here() || failure.is_transient() && !failure.maybe_executed()
        };
        if reply.as_ref().is_err_and(is_elsewhere)
            && let Ok(other) = self.master(Some(named), Limit::of_attempt(time / 4, interrupt))
        {
            reply = other.run_script(call, interrupt);
        }
        reply.map_err(|refusal| {
            let demoted = refusal.is_not_here().then(|| not_a_master(self.master.endpoint()));
            self.explain(demoted.unwrap_or(refusal.failure))
        })
    }

    fn explain(&self, failure: Failure) -> Failure {
        let service = &self.service;
        let remedy =
            format!("wait for a failover, or check SENTINEL MASTER {service} on a sentinel");
        let failure = failure.of_master("the sentinels have not replaced it yet", &remedy);
        failure.reworded(|why| format!("master of {service}: {why}"))
    }

    fn last(&mut self) -> &mut Node {
        &mut self.master
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        Ok(vec![self.master(None, Limit::of_attempt(self.io_timeout, NEVER))?])
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        let mut diagnostics = std::mem::take(&mut self.diagnostics);
        diagnostics.append(&mut self.master.diagnostics);
        diagnostics
    }
}
