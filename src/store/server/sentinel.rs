//! The master that Redis Sentinel names. A sentinel is asked before every request, because a master
//! that was frozen during a failover still believes that it is the master when it resumes.

use std::time::Duration;

use super::node::{Node, Probe, Reply};
use super::refusal::{Refusal, UNSUPPORTED_COMMAND};
use super::scripts::Call;
use super::topology::Topology;
use crate::report::{Diagnostic, Fault};
use crate::store::wire::{self, Address, Cmd, Endpoint, Value};
use crate::store::{Failure, Fate, Interrupt};

/// The sentinels of a service, and its master.
pub(in crate::store) struct Sentinel {
    /// The one that answered last comes first.
    sentinels: Vec<Node>,
    service: String,
    master: Node,
    database: u32,
    diagnostics: Vec<Diagnostic>,
}

impl Sentinel {
    /// `master` has the credentials and the database of the master; its endpoint is unknown until a
    /// sentinel answers. An error means that a TLS file cannot be used.
    pub(in crate::store) fn new(
        sentinels: &[Address],
        service: &str,
        master: &Address,
        io_timeout: Duration,
    ) -> Result<Self, String> {
        // The sentinels share the time for one reply.
        let each = io_timeout / u32::try_from(sentinels.len()).unwrap_or(u32::MAX);
        let sentinels = sentinels.iter().map(|sentinel| Node::new(sentinel.clone(), each, None));
        Ok(Self {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            service: service.to_owned(),
            master: Node::new(master.clone(), io_timeout, Some(Probe::Role))?,
            database: master.database,
            diagnostics: Vec::new(),
        })
    }

    /// The master that the first sentinel to answer names.
    fn master(&mut self, interrupt: Interrupt<'_>) -> Result<&mut Node, Failure> {
        let mut failures = Vec::new();
        for index in 0..self.sentinels.len() {
            match self.ask(index, interrupt) {
                Ok(endpoint) => {
                    self.sentinels[..=index].rotate_right(1);
                    if *self.master.endpoint() != endpoint {
                        let sentinel = self.sentinels[0].endpoint();
                        let what = format!("sentinel {sentinel}: {endpoint} is the master");
                        self.diagnostics.push(Diagnostic::Detail(what));
                        self.master = self
                            .master
                            .sibling(endpoint)
                            .map_err(|what| Failure::misconfigured(Fault::new(what)))?;
                    }
                    return Ok(&mut self.master);
                }
                Err(failure @ Failure::Interrupted { .. }) => return Err(failure),
                Err(failure) => {
                    self.diagnostics.push(Diagnostic::Detail(format!("sentinel: {failure}")));
                    failures.push(failure);
                }
            }
        }
        Err(none_of(failures))
    }

    fn ask(&mut self, index: usize, interrupt: Interrupt<'_>) -> Result<Endpoint, Failure> {
        let Self { sentinels, service, .. } = self;
        let sentinel = &mut sentinels[index];
        let question = wire::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&*service).clone();
        let answer =
            sentinel.ask(question, interrupt).map_err(|refusal| match Failure::from(refusal) {
                failure if failure.problem().contains(UNSUPPORTED_COMMAND) => {
                    let fault = Fault::new(format!("{} is not a sentinel", sentinel.endpoint()));
                    let remedy = "use the addresses of the sentinels (usually port 26379)";
                    Failure::misconfigured(fault.with_remedy(remedy))
                }
                failure => failure,
            });
        match answer? {
            Value::Nil => {
                let what =
                    format!("sentinel {} does not know service '{service}'", sentinel.endpoint());
                let fault = Fault::new(what).with_remedy("correct the service name in the URL");
                Err(Failure::misconfigured(fault))
            }
            answer => {
                let address = wire::from_redis_value::<(String, u16)>(answer);
                let (host, port) = address.map_err(|_| sentinel.unexpected_reply())?;
                Ok(Endpoint::Tcp { host, port })
            }
        }
    }
}

/// The failure to report when no sentinel names a master: one that the user can fix, or else the
/// first.
fn none_of(mut failures: Vec<Failure>) -> Failure {
    let count = failures.len();
    let answers = failures.iter().any(|failure| !failure.is_unreachable());
    let worst = failures.iter().position(|f| matches!(f, Failure::Misconfigured { .. }));
    match failures.swap_remove(worst.unwrap_or(0)) {
        failure @ Failure::Misconfigured { .. } => failure,
        first => {
            let what = format!(
                "no sentinel returned the master's address ({count} asked): {}",
                first.problem()
            );
            let fault = Fault::new(what).with_remedy("check the sentinels");
            match answers {
                true => Failure::Unavailable(fault),
                false => Failure::Unreachable { fault, fate: Fate::NotSent, others_answer: false },
            }
        }
    }
}

impl Topology for Sentinel {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        let reply = self.master(interrupt)?.run_script(call, false, interrupt);
        reply.map_err(|refusal| match refusal {
            Refusal::Demoted { peer } => {
                let what = format!("{peer} is not a master, although a sentinel reports it as one");
                let remedy = "try again when the failover has ended";
                Failure::Unavailable(Fault::new(what).with_remedy(remedy))
            }
            // A sentinel has just named this server.
            refusal => Failure::from(refusal).while_others_answer(),
        })
    }

    fn sleep(
        &mut self,
        command: Cmd,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Failure> {
        Ok(self.master.sleep(command, false, at_most, interrupt)?)
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        Ok(vec![self.master(None)?])
    }

    fn database(&self) -> u32 {
        self.database
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        let mut diagnostics = std::mem::take(&mut self.diagnostics);
        diagnostics.extend(self.master.take_diagnostics());
        diagnostics
    }
}
