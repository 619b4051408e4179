//! What a server tells of itself.

use super::node::Node;
use super::scripts::Question;
use crate::rules::Failure;
use crate::rules::servers::{Facts, Role, Server, evicts_locks};
use crate::store::NEVER;
use crate::store::wire::{self, Cmd, Value, from_redis_value};

/// Facts that INFO does not tell on all servers, and the settings that do.
const SETTINGS: [(&str, &str); 6] = [
    ("appendfsync", "appendfsync"),
    ("timeout", "timeout"),
    ("maxclients", "maxclients"),
    ("aof_enabled", "appendonly"),
    ("maxmemory", "maxmemory"),
    ("maxmemory_policy", "maxmemory-policy"),
];

/// Adds all that this user may read of a server with locks, or of a replica of one.
pub(in crate::store) fn of_server(node: &mut Node, server: &mut Server) {
    let read = |reply: Value| from_redis_value::<String>(reply).unwrap_or_default();
    let information = ask(node, server, wire::cmd("INFO")).map(read).unwrap_or_default();
    server.facts.read(&information);
    if information.is_empty() {
        return;
    }
    if server.role != Role::Replica && server.facts.text("cluster_enabled") == Some("1") {
        let question = wire::cmd("CLUSTER").arg("INFO").to_owned();
        let cluster = ask(node, server, question).map(read).unwrap_or_default();
        server.facts.read(&cluster);
    }
    for (fact, setting) in SETTINGS {
        if server.facts.text(fact).is_some() {
            continue;
        }
        let question = wire::cmd("CONFIG").arg("GET").arg(setting).to_owned();
        match asked(node, server, question).map(|answer| answer.map(pairs)) {
            Some(Ok(settings)) => {
                let value = |(_, value): (String, String)| match &*value {
                    "yes" => (fact.to_owned(), "1".into()),
                    "no" => (fact.to_owned(), "0".into()),
                    _ => (fact.to_owned(), value),
                };
                server.facts.extend(settings.into_iter().map(value));
            }
            // Providers that block this choose the settings themselves.
            Some(Err(_)) => {
                server.unknown.push(format!("{setting} (no permission for CONFIG GET)"));
            }
            None => {}
        }
    }
}

/// Adds what a sentinel knows of a service.
pub(in crate::store) fn of_service(sentinel: &mut Node, server: &mut Server, service: &str) {
    let question = |of| wire::cmd("SENTINEL").arg(of).arg(service).to_owned();
    let answer = ask(sentinel, server, question("MASTER")).map(pairs).unwrap_or_default();
    server.facts.extend(answer);
    if let Some(Err(failure)) = asked(sentinel, server, question("CKQUORUM")) {
        // The details follow the code of the error.
        match failure.problem().split_once("NOQUORUM ") {
            Some((_, why)) => server.facts.extend([("no-quorum".to_owned(), why.to_owned())]),
            None => server.unanswered.push(failure.fault),
        }
    }
}

/// The reply; `None` if there is none, which is remembered.
fn ask(node: &mut Node, server: &mut Server, question: Cmd) -> Option<Value> {
    asked(node, server, question)?.map_err(|it| server.unanswered.push(it.fault)).ok()
}

/// The reply, or the refusal; `None` without either, which is remembered.
fn asked(node: &mut Node, server: &mut Server, question: Cmd) -> Option<Result<Value, Failure>> {
    if server.failure.is_some() {
        return None;
    }
    let answer = node.ask(question, NEVER).map_err(Failure::from);
    let silent = answer.as_ref().err().filter(|it| it.is_unreachable());
    server.failure = silent.map(|failure| failure.fault.clone());
    server.failure.is_none().then_some(answer)
}

/// A warning for the operator if the server evicts keys rather than refuse writes. `None` also if
/// this user may not run INFO.
pub(super) fn eviction(node: &mut Node) -> Option<String> {
    let mut facts = Facts::default();
    let known = node.memory.take();
    let answer = known.or_else(|| node.ask(Question::Memory.command(), NEVER).ok())?;
    let memory: String = from_redis_value(answer).ok()?;
    memory.lines().filter(|line| line.starts_with("maxmemory")).for_each(|line| facts.read(line));
    let problem = evicts_locks(&facts)?;
    Some(format!("{} {problem}; set maxmemory-policy noeviction", node.endpoint()))
}

/// Reads a flat list of names and values.
fn pairs(reply: Value) -> Vec<(String, String)> {
    let fields: Vec<String> = from_redis_value(reply).unwrap_or_default();
    let (pairs, _) = fields.as_chunks();
    pairs.iter().cloned().map(|[name, value]| (name, value)).collect()
}
