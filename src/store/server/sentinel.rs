//! The server that Redis Sentinel calls the master. Sentinels are asked before every request: a
//! master that was frozen and has come back takes itself for one until it is told otherwise.

use std::time::Duration;

use super::node::{Node, Question, Reply};
use super::refusal::Refusal;
use super::scripted::Servers;
use super::scripts::Call;
use crate::report::Diagnostic;
use crate::store::location::Sentinels;
use crate::store::wire::{self, Cmd, Endpoint, Value};
use crate::store::{Failure, Fate, Interrupt};

/// The sentinels of a service, and its master.
pub(in crate::store) struct Sentinel {
    /// Who answered last comes first.
    sentinels: Vec<Node>,
    service: String,
    master: Node,
    database: u32,
    diagnostics: Vec<Diagnostic>,
}

impl Sentinel {
    /// An error is a file for TLS that cannot be used.
    pub(in crate::store) fn new(
        location: &Sentinels,
        io_timeout: Duration,
    ) -> Result<Self, String> {
        let Sentinels { sentinels, service, master } = location;
        // All of them together have the time for one answer.
        let each = io_timeout / u32::try_from(sentinels.len()).unwrap_or(u32::MAX);
        let sentinels = sentinels.iter().map(|sentinel| Node::new(sentinel.clone(), each, None));
        Ok(Self {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            service: service.clone(),
            master: Node::new(master.clone(), io_timeout, Some(Question::Role))?,
            database: master.database,
            diagnostics: Vec::new(),
        })
    }

    /// The master by the first sentinel that knows one.
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
                            .map_err(|what| Failure::Misconfigured { what, executed: false })?;
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
        let answer = sentinel.ask(question, interrupt).map_err(|refusal| match refusal.into() {
            Failure::Misconfigured { what, .. } if what.contains("lacks a command") => {
                let what = format!(
                    "{} is no sentinel; redis+sentinel: takes the sentinels' addresses, which have \
                     port 26379 as a rule",
                    sentinel.endpoint()
                );
                Failure::Misconfigured { what, executed: false }
            }
            failure => failure,
        });
        match answer? {
            Value::Nil => Err(Failure::Misconfigured {
                what: format!("sentinel {} knows no service {service}", sentinel.endpoint()),
                executed: false,
            }),
            answer => {
                let address = wire::from_redis_value::<(String, u16)>(answer);
                let (host, port) = address.map_err(|_| sentinel.unexpected_reply())?;
                Ok(Endpoint::Tcp { host, port })
            }
        }
    }
}

/// What to say when no sentinel can tell: what somebody can mend, else the first of them.
fn none_of(mut failures: Vec<Failure>) -> Failure {
    let count = failures.len();
    let answers = failures.iter().any(|failure| !failure.is_unreachable());
    let worst = failures.iter().position(|f| matches!(f, Failure::Misconfigured { .. }));
    match failures.swap_remove(worst.unwrap_or(0)) {
        failure @ Failure::Misconfigured { .. } => failure,
        first => {
            let what = format!("none of {count} sentinels can name the master: {first}");
            match answers {
                true => Failure::Unavailable(what),
                false => Failure::Unreachable { what, fate: Fate::NotSent },
            }
        }
    }
}

impl Servers for Sentinel {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        let reply = self.master(interrupt)?.run(call, false, interrupt);
        reply.map_err(|refusal| match refusal {
            Refusal::Demoted { peer } => Failure::Unavailable(format!(
                "{peer} is no master, though a sentinel says so; a failover is under way"
            )),
            refusal => refusal.into(),
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

    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        let mut diagnostics = std::mem::take(&mut self.diagnostics);
        diagnostics.extend(self.master.diagnostics());
        diagnostics
    }
}
