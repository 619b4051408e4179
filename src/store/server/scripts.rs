//! The scripts in `lua/`, and how to call them.

use std::time::Duration;

use sha1_smol::Sha1;

use crate::rules::{Key, Token};
use crate::store::wire::{self, Cmd};

/// A script with the parts that it needs, and the SHA-1 by which the server knows it.
#[derive(Clone, Copy)]
pub struct Script {
    pub(super) source: &'static str,
    hash: &'static str,
}

// build/scripts.rs generates one constant for each request in lua/requests/, such as ACQUIRE.
include!(concat!(env!("OUT_DIR"), "/scripts.rs"));

/// How long an undo, which is a release or a withdrawal, waits for an answer at most. No signal
/// interrupts it, and it must not keep rlock from its exit for longer.
const UNDO_TIME: Duration = Duration::from_secs(2);

pub struct Call {
    script: Script,
    key: Key,
    arguments: Vec<Vec<u8>>,
    /// How many replicas must confirm a success; 0 if none.
    pub(super) min_replicas: u32,
    pub(super) expects_no_reply: bool,
    /// What else the server is asked in the same flight.
    pub(super) questions: &'static [Question],
}

/// What a reply depends on, or a warning.
#[derive(Clone, Copy)]
pub(in crate::store) enum Question {
    /// Since when the server is a master: it commits to a hold, as one of several servers.
    Promotion,
    /// Whether a replica still has its master.
    MasterLink,
    /// Whether the server evicts keys. `facts::eviction` reads the answer later.
    Memory,
}

impl Question {
    pub(super) fn command(self) -> Cmd {
        let section = match self {
            Self::Promotion | Self::MasterLink => "replication",
            Self::Memory => "memory",
        };
        wire::cmd("INFO").arg(section).to_owned()
    }
}

/// The keys of a lock, and of the mailbox of one client.
pub(in crate::store) fn keys(key: &Key, token: &str) -> [String; 7] {
    [
        key.as_str().to_owned(),
        key.side("holds"),
        key.side("state"),
        key.side("queue"),
        mailbox(key, token),
        key.side("history"),
        key.side("tombstones"),
    ]
}

impl Call {
    /// The keys and arguments that all scripts have in common; `with` adds the others.
    pub fn new(script: Script, key: &Key, token: Option<&Token>, database: u32) -> Self {
        let token = token.map_or("", Token::as_str);
        let keys = keys(key, token);
        let mut arguments = vec![keys.len().to_string().into_bytes()];
        arguments.extend(keys.map(String::into_bytes));
        let questions = if script.hash == COMMIT.hash { &[Question::Promotion][..] } else { &[] };
        let key = key.clone();
        Self { script, key, arguments, min_replicas: 0, expects_no_reply: false, questions }
            .with(database)
            .with(token)
    }

    pub(in crate::store) fn with(self, argument: impl ToString) -> Self {
        self.with_all([argument.to_string()])
    }

    pub(super) fn with_all(mut self, arguments: impl IntoIterator<Item = String>) -> Self {
        self.arguments.extend(arguments.into_iter().map(String::into_bytes));
        self
    }

    /// A success counts only once `min_replicas` replicas have confirmed it.
    pub(in crate::store) fn confirmed_by(self, min_replicas: u32) -> Self {
        Self { min_replicas, ..self }
    }

    pub(super) fn asking(self, questions: &'static [Question]) -> Self {
        Self { questions, ..self }
    }

    /// Nobody awaits the reply.
    pub(in crate::store) fn no_reply(self) -> Self {
        Self { expects_no_reply: true, ..self }
    }

    /// The Redis command that a line of the script calls, counted from 1, to name it when the
    /// server denies it.
    pub(in crate::store) fn command_at(&self, line: usize) -> Option<&'static str> {
        let line = self.script.source.lines().nth(line.checked_sub(1)?)?;
        let (_, call) = line.split_once("call('")?;
        call.split('\'').next()
    }

    /// The key patterns that an ACL rule must allow for the lock: its guard and its side keys.
    pub(in crate::store) fn key_patterns(&self) -> [String; 2] {
        [self.key.as_str().to_owned(), self.key.sides()]
    }

    /// The command that runs the script as source, which makes the server remember its hash.
    pub fn as_source(&self, read_only: bool) -> Cmd {
        self.command(if read_only { "EVAL_RO" } else { "EVAL" }, self.script.source)
    }

    /// The command that runs the script by its hash, which a server that does not know it answers
    /// with NOSCRIPT.
    pub fn by_hash(&self, read_only: bool) -> Cmd {
        self.command(if read_only { "EVALSHA_RO" } else { "EVALSHA" }, self.script.hash)
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let size = self.arguments.iter().map(Vec::len).sum::<usize>();
        let mut command =
            Cmd::with_capacity(2 + self.arguments.len(), verb.len() + script.len() + size);
        command.arg(verb).arg(script).arg(&self.arguments);
        command
    }

    pub(in crate::store) fn is_read_only(&self) -> bool {
        self.script.hash == INSPECT.hash
    }

    /// How long each answer may take, if one is expected.
    pub(in crate::store) fn time(&self, io_timeout: Duration) -> Duration {
        if self.is_undo() { io_timeout.min(UNDO_TIME) } else { io_timeout }
    }

    pub(in crate::store) fn is_undo(&self) -> bool {
        [LEAVE.hash, RELEASE.hash].contains(&self.script.hash)
    }
}

/// The list on which a waiter blocks, as in `lua/queue.lua`. Its name does not reveal the token.
pub(in crate::store) fn mailbox(key: &Key, token: &str) -> String {
    key.side(&format!("mail:{}", Sha1::from(token).digest()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_calls_one_command_so_that_a_denied_one_can_be_named() {
        for script in [ACQUIRE, RENEW, RELEASE, LEAVE, REVOKE, INSPECT, PROPOSE, COMMIT] {
            for line in script.source.lines() {
                assert!(line.matches("call('").count() <= 1, "{line}");
            }
        }
    }
}
