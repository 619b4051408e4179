//! The scripts of `lua/`, and the call of one.

use crate::lock::{Key, Token};
use crate::store::wire::{self, Cmd};

/// A script with the parts that it needs, and the SHA-1 by which the server knows it.
#[derive(Clone, Copy)]
pub(in crate::store) struct Script {
    source: &'static str,
    hash: &'static str,
}

// ACQUIRE, RENEW, RELEASE, LEAVE, REVOKE and INSPECT, by build.rs.
include!(concat!(env!("OUT_DIR"), "/scripts.rs"));

#[cfg(test)]
impl Script {
    pub(in crate::store) fn of(source: &'static str) -> Self {
        Self { source, hash: "none" }
    }

    pub(in crate::store) fn source(self) -> &'static str {
        self.source
    }
}

/// A script with its arguments, ready to be sent in either way.
pub(in crate::store) struct Call {
    script: Script,
    arguments: Vec<Vec<u8>>,
    min_replicas: u32,
}

impl Call {
    /// The keys and first arguments that every script has; `with` adds those of its own.
    pub(in crate::store) fn new(
        script: Script,
        key: &Key,
        token: Option<&Token>,
        database: u32,
    ) -> Self {
        let token = token.map_or("", Token::as_str);
        let keys = [
            key.as_str().to_owned(),
            key.side("holds"),
            key.side("state"),
            key.side("queue"),
            mailbox(key, token),
            key.side("past"),
            key.side("over"),
        ];
        let mut arguments = vec![keys.len().to_string().into_bytes()];
        arguments.extend(keys.map(String::into_bytes));
        Self { script, arguments, min_replicas: 0 }.with(database).with(token)
    }

    pub(in crate::store) fn with(mut self, argument: impl ToString) -> Self {
        self.arguments.push(argument.to_string().into_bytes());
        self
    }

    /// What it does counts only once so many replicas have it.
    pub(in crate::store) fn confirmed_by(self, min_replicas: u32) -> Self {
        Self { min_replicas, ..self }
    }

    pub(in crate::store) fn min_replicas(&self) -> u32 {
        self.min_replicas
    }

    /// The command that a line of the script calls, to name it when it was denied.
    pub(in crate::store) fn command_at(&self, line: usize) -> Option<&'static str> {
        let line = self.script.source.lines().nth(line.checked_sub(1)?)?;
        let (_, call) = line.split_once("call('")?;
        call.split('\'').next()
    }

    /// What an ACL rule has to allow for the lock: its guard, and the keys beside it.
    pub(in crate::store) fn key_patterns(&self) -> [String; 2] {
        let key = |index: usize| {
            String::from_utf8_lossy(self.arguments.get(index).map_or(&[][..], Vec::as_slice))
        };
        // After the number of keys: the guard, and the holds as one of those beside it.
        let side = key(2);
        [key(1).into_owned(), format!("{}*", side.strip_suffix("holds").unwrap_or(&side))]
    }

    /// By its hash, for a server that has seen it before.
    pub(in crate::store) fn by_hash(&self, verbs: Verbs) -> Cmd {
        self.command(verbs.by_hash(), self.script.hash)
    }

    /// In full, which also makes the server remember it.
    pub(in crate::store) fn in_full(&self, verbs: Verbs) -> Cmd {
        self.command(verbs.in_full(), self.script.source)
    }

    /// Does it leave everything as it is?
    pub(in crate::store) fn only_looks(&self) -> bool {
        self.script.hash == INSPECT.hash
    }

    /// Does it undo what was asked for before?
    pub(in crate::store) fn takes_back(&self) -> bool {
        [LEAVE.hash, RELEASE.hash].contains(&self.script.hash)
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = wire::cmd(verb);
        command.arg(script).arg(&self.arguments);
        command
    }
}

/// The commands that run a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Verbs {
    Any,
    /// For those that only look: users with no right to write have these. From Redis 7 on.
    ToLook,
}

impl Verbs {
    fn by_hash(self) -> &'static str {
        match self {
            Self::Any => "EVALSHA",
            Self::ToLook => "EVALSHA_RO",
        }
    }

    fn in_full(self) -> &'static str {
        match self {
            Self::Any => "EVAL",
            Self::ToLook => "EVAL_RO",
        }
    }
}

/// The list on which a waiter sleeps.
pub(in crate::store) fn mailbox(key: &Key, token: &str) -> String {
    key.side(&format!("mail:{token}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_calls_one_command_so_that_a_denied_one_can_be_named() {
        for script in [ACQUIRE, RENEW, RELEASE, LEAVE, REVOKE, INSPECT] {
            for line in script.source.lines() {
                assert!(line.matches("call('").count() <= 1, "{line}");
            }
        }
    }
}
