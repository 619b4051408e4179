//! What a server tells of itself.

use super::node::Node;
use crate::rules::Failure;
use crate::rules::servers::{Facts, Server, evicts_locks};
use crate::store::wire::{self, Cmd, Value, from_redis_value};

/// The settings that INFO does not tell.
const SETTINGS: [&str; 3] = ["appendfsync", "maxclients", "timeout"];

/// Adds all that this user may read of a server with locks.
pub(in crate::store) fn of_server(node: &mut Node, server: &mut Server) {
    let read = |reply: Value| from_redis_value::<String>(reply).unwrap_or_default();
    let information = ask(node, server, "INFO", wire::cmd("INFO")).map(read).unwrap_or_default();
    server.facts.read(&information);
    if server.facts.text("cluster_enabled") == Some("1") {
        let question = wire::cmd("CLUSTER").arg("INFO").to_owned();
        let cluster = ask(node, server, "CLUSTER INFO", question).map(read).unwrap_or_default();
        server.facts.read(&cluster);
    }
    for setting in SETTINGS {
        let question = wire::cmd("CONFIG").arg("GET").arg(setting).to_owned();
        let answer = ask(node, server, "CONFIG GET", question).map(pairs).unwrap_or_default();
        server.facts.extend(answer);
    }
}

/// Adds what a sentinel knows of a service.
pub(in crate::store) fn of_service(sentinel: &mut Node, server: &mut Server, service: &str) {
    let question = wire::cmd("SENTINEL").arg("MASTER").arg(service).to_owned();
    let answer = ask(sentinel, server, "SENTINEL MASTER", question).map(pairs).unwrap_or_default();
    server.facts.extend(answer);
}

/// The reply; `None` also if this user may not ask, which is remembered.
fn ask(node: &mut Node, server: &mut Server, name: &'static str, question: Cmd) -> Option<Value> {
    if server.failure.is_some() {
        return None;
    }
    match node.ask(question, None).map_err(Failure::from) {
        Ok(reply) => return Some(reply),
        Err(failure) if failure.is_unreachable() => server.failure = Some(failure.message()),
        Err(_) if server.unknown.contains(&name) => {}
        Err(_) => server.unknown.push(name),
    }
    None
}

/// A warning for the operator if the server evicts keys rather than refuse writes. `None` also if
/// this user may not run INFO.
pub(super) fn eviction(node: &mut Node) -> Option<String> {
    let mut facts = Facts::default();
    let answer = node.ask(wire::cmd("INFO").arg("memory").to_owned(), None).ok()?;
    facts.read(&from_redis_value::<String>(answer).ok()?);
    let problem = evicts_locks(&facts)?;
    Some(format!("{} {problem}; set maxmemory-policy noeviction", node.endpoint()))
}

/// Reads a flat list of names and values.
fn pairs(reply: Value) -> Vec<(String, String)> {
    let fields: Vec<String> = from_redis_value(reply).unwrap_or_default();
    let (pairs, _) = fields.as_chunks();
    pairs.iter().cloned().map(|[name, value]| (name, value)).collect()
}
