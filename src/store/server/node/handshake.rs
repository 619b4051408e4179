//! What a new connection sends ahead of its first commands: AUTH, and one question about the
//! server. Both travel in the same pipeline as those commands, so they cost no round trip.

use std::time::Duration;

use crate::rules::Instant;
use crate::rules::servers::{Began, Run};
use crate::store::wire::{self, Cmd, Peer, Value};

/// What a new connection asks about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Whether it is a master. rlock rejects any other server.
    Role,
    /// Which run of the server program answers, and how long it has been up.
    Run,
}

/// The commands that a new connection sends first: AUTH if there is a password, then the probe.
pub(super) fn commands(peer: &mut Peer, probe: Option<Probe>) -> Vec<Cmd> {
    let mut commands = Vec::new();
    if let Some(password) = peer.present_password() {
        let mut auth = wire::cmd("AUTH");
        auth.arg(peer.username.as_slice()).arg(password);
        commands.push(auth);
    }
    commands.extend(probe.map(|probe| match probe {
        Probe::Role => wire::cmd("ROLE"),
        Probe::Run => wire::cmd("INFO").arg("server").to_owned(),
    }));
    commands
}

pub fn is_master(role: &Value) -> bool {
    match role {
        Value::Array(fields) => {
            matches!(fields.first(), Some(Value::BulkString(role)) if role == b"master")
        }
        _ => false,
    }
}

/// The run of the server program that a reply to INFO tells; `None` if a field is missing or
/// malformed.
pub fn run(information: &Value) -> Option<Run> {
    let Value::BulkString(text) = information else { return None };
    let text = String::from_utf8_lossy(text);
    let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let uptime = Duration::from_secs(field("uptime_in_seconds:")?.parse().ok()?);
    // The server subtracts two times that were each cut to whole seconds, so the result can be
    // almost a second too long.
    let uptime = uptime.saturating_sub(Duration::from_secs(1));
    let (id, since) = (field("run_id:")?.to_owned(), Instant::now() - uptime);
    Some(Run { id, since, began: Began::Started })
}
