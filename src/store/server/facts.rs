//! What a server tells of itself.

use super::node::Node;
use crate::rules::servers::{Facts, evicts_locks};
use crate::store::wire::{self, Value, from_redis_value};

/// The settings that INFO does not tell.
const SETTINGS: [&str; 3] = ["appendfsync", "maxclients", "timeout"];

/// All that this user may read.
pub(in crate::store) fn all(node: &mut Node) -> Facts {
    let mut facts = Facts::default();
    facts.read(&info(node, &[]));
    if facts.text("cluster_enabled") == Some("1") {
        facts.read(&text(node.ask(wire::cmd("CLUSTER").arg("INFO").to_owned(), None).ok()));
    }
    for setting in SETTINGS {
        let reply = node.ask(wire::cmd("CONFIG").arg("GET").arg(setting).to_owned(), None);
        facts.extend(pairs(reply.ok()));
    }
    facts
}

/// What a sentinel knows of a service.
pub(in crate::store) fn of_service(sentinel: &mut Node, service: &str) -> Facts {
    let mut facts = Facts::default();
    let question = wire::cmd("SENTINEL").arg("MASTER").arg(service).to_owned();
    facts.extend(pairs(sentinel.ask(question, None).ok()));
    facts
}

/// A warning for the operator if the server evicts keys rather than refuse writes. `None` also if
/// this user may not run INFO.
pub(super) fn eviction(node: &mut Node) -> Option<String> {
    let mut facts = Facts::default();
    facts.read(&info(node, &["memory"]));
    let problem = evicts_locks(&facts)?;
    Some(format!("{} {problem}; set maxmemory-policy noeviction", node.endpoint()))
}

fn info(node: &mut Node, sections: &[&str]) -> String {
    text(node.ask(wire::cmd("INFO").arg(sections).to_owned(), None).ok())
}

fn text(reply: Option<Value>) -> String {
    reply.and_then(|reply| from_redis_value(reply).ok()).unwrap_or_default()
}

/// Reads a flat list of names and values.
fn pairs(reply: Option<Value>) -> Vec<(String, String)> {
    let fields: Vec<String> =
        reply.and_then(|reply| from_redis_value(reply).ok()).unwrap_or_default();
    let (pairs, _) = fields.as_chunks();
    pairs.iter().cloned().map(|[name, value]| (name, value)).collect()
}
