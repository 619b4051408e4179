//! Whether a replica still has its master, without which what it shows may be old.

use super::super::refusal;
use super::super::scripts::Question;
use super::{Node, Refusal};
use crate::report::Diagnostic;
use crate::rules::{Failure, FailureKind};
use crate::store::NEVER;
use crate::store::wire::{Value, from_redis_value};

impl Node {
    /// Fails if the server is a replica that has lost its master. Without the permission to ask, warns.
    pub(in crate::store) fn ask_master_link(&mut self) -> Result<(), Failure> {
        let reply = self.ask(Question::MasterLink.command(), NEVER);
        self.read_master_link(reply)
    }

    /// Reads the reply to INFO replication.
    pub(super) fn read_master_link(
        &mut self,
        reply: Result<Value, Refusal>,
    ) -> Result<(), Failure> {
        let replication = match reply.map_err(Refusal::of_question) {
            Err(failure) if failure.kind == FailureKind::Misconfigured => {
                let doubt = "so rlock cannot tell whether its master is missing";
                let doubt = failure.reworded(|what| format!("{what}, {doubt}")).to_string();
                self.diagnostics.push(Diagnostic::Warning(doubt));
                return Ok(());
            }
            reply => from_redis_value::<String>(reply?).unwrap_or_default(),
        };
        if !replication.contains("master_link_status:down") {
            return Ok(());
        }
        Err(refusal::without_master(&self.peer).into())
    }
}
