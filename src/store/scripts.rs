//! The scripts of `lua/`, and the call of one.

use redis::Cmd;

use super::Address;
use crate::lock::{Key, Token};

/// A script with the prologue before it, and the SHA-1 by which the server knows it.
#[derive(Clone, Copy)]
pub(super) struct Script {
    source: &'static str,
    hash: &'static str,
}

// ACQUIRE, RENEW, RELEASE, LEAVE, REVOKE and INSPECT, by build.rs.
include!(concat!(env!("OUT_DIR"), "/scripts.rs"));

#[cfg(test)]
impl Script {
    pub(super) fn of(source: &'static str) -> Self {
        Self { source, hash: "none" }
    }

    pub(super) fn source(self) -> &'static str {
        self.source
    }
}

/// A script with its arguments, ready to be sent in either way.
pub(super) struct Call {
    script: Script,
    arguments: Vec<Vec<u8>>,
}

impl Call {
    /// The keys and first arguments that every script has; `with` adds those of its own.
    pub(super) fn new(script: Script, key: &Key, token: Option<&Token>, address: &Address) -> Self {
        let token = token.map_or("", Token::as_str);
        let keys = [
            key.as_str().to_owned(),
            key.side("holds"),
            key.side("state"),
            key.side("queue"),
            mailbox(key, token),
        ];
        let mut arguments = vec![keys.len().to_string().into_bytes()];
        arguments.extend(keys.map(String::into_bytes));
        Self { script, arguments }.with(address.database).with(token)
    }

    pub(super) fn with(mut self, argument: impl ToString) -> Self {
        self.arguments.push(argument.to_string().into_bytes());
        self
    }

    /// By its hash, for a server that has seen it before.
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", self.script.hash)
    }

    /// In full, which also makes the server remember it.
    pub(super) fn in_full(&self) -> Cmd {
        self.command("EVAL", self.script.source)
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(&self.arguments);
        command
    }
}

/// The list on which a waiter sleeps.
pub(super) fn mailbox(key: &Key, token: &str) -> String {
    key.side(&format!("mail:{token}"))
}
