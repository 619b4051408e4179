//! The master that Redis Sentinel names. A sentinel is asked before every request, because a master
//! that was frozen during a failover still believes that it is the master when it resumes.

use std::sync::Arc;
use std::time::Duration;

use super::answers::Answers;
use super::node::{Node, Probe, Reply};
use super::refusal::{Redirection, Refusal, UNSUPPORTED_COMMAND};
use super::scripts::Call;
use super::topology::Topology;
use crate::report::Diagnostic;
use crate::rules::{Delivery, Failure, UserMessage};
use crate::store::Interrupt;
use crate::store::wire::{self, Address, Endpoint, Limit, Value};

/// How much longer than the first sentinel another one may take to name a master.
const PATIENCE: Duration = Duration::from_millis(50);

/// The sentinels of a service, and its master.
pub(in crate::store) struct Sentinel {
    sentinels: Vec<Node>,
    service: Arc<str>,
    /// What the sentinels have answered to the last question, or will.
    answers: Option<Answers<Result<Endpoint, Failure>>>,
    master: Node,
    io_timeout: Duration,
    diagnostics: Vec<Diagnostic>,
}

impl Sentinel {
    /// `master` has the credentials and the database of the master; its endpoint is unknown until a
    /// sentinel answers. `io_timeout` bounds the time that all sentinels together take, and each
    /// connection attempt and each reply of the master. An error means that a TLS file cannot be
    /// used.
    pub(in crate::store) fn new(
        sentinels: &[Address],
        service: &str,
        master: &Address,
        io_timeout: Duration,
    ) -> Result<Self, String> {
        let sentinels =
            sentinels.iter().map(|sentinel| Node::new(sentinel.clone(), io_timeout, None));
        Ok(Self {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            service: service.into(),
            answers: None,
            master: Node::new(master.clone(), io_timeout, Some(Probe::Role))?,
            io_timeout,
            diagnostics: Vec::new(),
        })
    }

    /// The master that the first sentinel to answer names.
    fn master(&mut self, interrupt: Interrupt<'_>) -> Result<&mut Node, Failure> {
        self.ask_all()?;
        let master = self.answer(Limit::new(self.io_timeout, interrupt));
        let master = master.map_err(|failures| none_of(failures, self.sentinels.len()))?;
        self.use_master(master)
    }

    /// Asks all sentinels for the master.
    fn ask_all(&mut self) -> Result<(), Failure> {
        // Those that answered after the first one keep their connections.
        while let Some((index, sentinel, _)) =
            self.answers.as_ref().and_then(|answers| answers.received.next())
        {
            self.sentinels[index] = sentinel;
        }
        let mut asked = Vec::new();
        for (index, sentinel) in self.sentinels.iter_mut().enumerate() {
            let another = sentinel.sibling(sentinel.endpoint().clone())?;
            asked.push((index, std::mem::replace(sentinel, another)));
        }
        let service = Arc::clone(&self.service);
        let question = move |sentinel: &mut Node| Some(ask(sentinel, &service));
        self.answers = Some(Answers::of(asked, Duration::ZERO, question)?);
        Ok(())
    }

    /// The master that the next sentinel to answer names.
    fn answer(&mut self, limit: Limit<'_>) -> Result<Endpoint, Vec<Failure>> {
        let Some(answers) = &self.answers else { return Err(Vec::new()) };
        let (index, master) =
            answers.first("sentinel", &mut self.sentinels, &mut self.diagnostics, limit)?;
        if *self.master.endpoint() != master {
            let sentinel = self.sentinels[index].endpoint();
            let what = format!("sentinel {sentinel}: {master} is the master");
            self.diagnostics.push(Diagnostic::Detail(what));
        }
        Ok(master)
    }

    /// A master other than the present one, if a sentinel already knows it.
    fn other_master(&mut self, interrupt: Interrupt<'_>) -> Option<Endpoint> {
        loop {
            let master = self.answer(Limit::new(PATIENCE, interrupt)).ok()?;
            if *self.master.endpoint() != master {
                return Some(master);
            }
        }
    }

    fn use_master(&mut self, master: Endpoint) -> Result<&mut Node, Failure> {
        if *self.master.endpoint() != master {
            self.master = self.master.sibling(master)?;
        }
        Ok(&mut self.master)
    }
}

/// Where the master of the service listens, according to one sentinel.
fn ask(sentinel: &mut Node, service: &str) -> Result<Endpoint, Failure> {
    let question = wire::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service).clone();
    let answer = sentinel.ask(question, None).map_err(|failure| match failure {
        failure if failure.problem().contains(UNSUPPORTED_COMMAND) => {
            let what = format!("{} is not a sentinel", sentinel.endpoint());
            let remedy = "use the addresses of the sentinels (usually port 26379)";
            Failure::misconfigured(what, remedy)
        }
        failure => failure,
    });
    match answer? {
        Value::Nil => {
            let what =
                format!("sentinel {} does not know service '{service}'", sentinel.endpoint());
            Err(Failure::misconfigured(what, "correct the service name in the URL"))
        }
        answer => {
            let address = wire::from_redis_value::<(String, u16)>(answer);
            let (host, port) = address.map_err(|_| sentinel.unexpected_reply())?;
            sentinel.address().named(&host, port)
        }
    }
}

/// The failure to report when none of `count` sentinels names a master: an interrupt, one that the
/// user can fix, or else the first.
fn none_of(failures: Vec<Failure>, count: usize) -> Failure {
    let answers = failures.iter().any(|failure| !failure.is_unreachable());
    match Failure::worst(failures) {
        failure @ (Failure::Misconfigured { .. } | Failure::Interrupted { .. }) => failure,
        first => {
            let what = format!(
                "no sentinel returned the master's address ({count} asked): {}",
                first.problem()
            );
            let fault = UserMessage::new(what).with_remedy("check the sentinels");
            match answers {
                true => Failure::Unavailable(fault),
                false => Failure::unreachable(fault, Delivery::NotSent),
            }
        }
    }
}

impl Topology for Sentinel {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        // It follows an earlier request, wherever that went.
        let expects_no_reply = call.expects_no_reply;
        let master = if expects_no_reply { &mut self.master } else { self.master(interrupt)? };
        let mut reply = master.run_script(call, false, interrupt);
        // During a failover, another sentinel may already name the new master.
        let is_demoted =
            |refusal: &Refusal| matches!(refusal.redirection, Some(Redirection::Master));
        if reply.as_ref().is_err_and(is_demoted)
            && !expects_no_reply
            && let Some(other) = self.other_master(interrupt)
        {
            reply = self.use_master(other)?.run_script(call, false, interrupt);
        }
        reply.map_err(|refusal| match is_demoted(&refusal) {
            true => {
                let peer = self.master.endpoint();
                let what = format!("{peer} is not a master, although a sentinel reports it as one");
                Failure::unavailable(what, "try again when the failover has ended")
            }
            // A sentinel has just named this server.
            false => refusal.failure.if_others(true),
        })
    }

    fn last(&mut self) -> (&mut Node, bool) {
        (&mut self.master, false)
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        Ok(vec![self.master(None)?])
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        let mut diagnostics = std::mem::take(&mut self.diagnostics);
        diagnostics.append(&mut self.master.link.diagnostics);
        diagnostics
    }
}
