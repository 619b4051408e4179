//! Looks at every server of a location: does there what a client does, and then asks about its
//! settings.

mod client;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use client::{of_directory, of_server};
use socket2::SockAddr;
use steps::{compare_clock, failed, unless_asked};

use super::NEVER;
use super::denial;
use super::location::{Location, Sentinels};
use super::server::cluster::masters_in;
use super::server::{Node, Probe, facts, sentinel};
use super::wire::{self, Limit, Peer};
use crate::rules::servers::{CERTIFICATE_ENDS_SOON, Role, Server, Survey};
use crate::rules::{Failure, Name, Prefix, ServerTime, SystemCall, Ttl, UserMessage};
use crate::system::thread;

/// How clients will use the servers.
#[derive(Clone)]
pub(crate) struct ClientSettings {
    pub(crate) prefix: Prefix,
    pub(crate) io_timeout: Duration,
    pub(crate) ttl: Ttl,
    pub(crate) min_replicas: u32,
    /// The lock beside which a user may have keys who may not use others.
    pub(crate) beside: Option<Name>,
}

/// Some hash slots of a cluster.
type Slots = RangeInclusive<u16>;

const ALL_SLOTS: Slots = 0..=u16::MAX;

/// Masters with hash slots, one entry for each range.
type Masters = Vec<(Peer, Slots)>;

impl Location {
    /// Looks at all servers at once. Each that does not answer takes one I/O timeout. It changes
    /// only locks with random names, and removes their keys.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(crate) fn survey(&self, settings: &ClientSettings) -> Result<Survey, Failure> {
        let settings = settings.clone();
        let is_quorum = matches!(self, Self::Quorum(_));
        let (ttl, min_replicas) = (settings.ttl, settings.min_replicas);
        let servers = match self {
            Self::Server(server) => of_named(vec![server.clone()], None, settings)?,
            Self::Quorum(servers) => of_named(servers.clone(), Some(Probe::Run), settings)?,
            Self::Sentinels(Sentinels { sentinels, service, master }) => {
                let (service, master) = (service.clone(), master.clone());
                let ask = move |node: &mut Node, server: &mut Server| {
                    of_service(node, server, &service, &master)
                };
                of_masters(sentinels, [Role::Sentinel, Role::Server], settings, ask)?
            }
            Self::Cluster(nodes) => {
                of_masters(nodes, [Role::Node; 2], settings, |node, _| of_cluster(node))?
            }
            Self::Local(directory) => vec![of_directory(directory, &settings)],
        };
        Ok(Survey { servers, is_quorum, ttl, min_replicas })
    }
}

/// Looks at several servers at the same time.
fn at_once<T: Send + 'static, R: Send + 'static>(
    all: Vec<T>,
    look: impl Fn(T) -> R + Clone + Send + 'static,
) -> Result<Vec<R>, Failure> {
    let start = |one| {
        let look = look.clone();
        let started = thread::start("survey", move || look(one));
        started.map_err(|error| denial::failure(SystemCall::Resource, &error))
    };
    let started: Vec<_> = all.into_iter().map(start).collect::<Result<_, _>>()?;
    // A panic aborts the process, so no thread ends without a result.
    Ok(started.into_iter().filter_map(|thread| thread.join().ok()).collect())
}

/// Looks at servers that the URLs name, and at all masters to which these names lead.
fn of_named(
    servers: Vec<Peer>,
    probe: Option<Probe>,
    settings: ClientSettings,
) -> Result<Vec<Server>, Failure> {
    let timeout = settings.io_timeout;
    let found = at_once(servers, move |peer| {
        let named = peer.clone();
        let mut server = of_server(peer, Role::Server, probe, &[ALL_SLOTS], &settings);
        add_masters_behind(&mut server, &named, timeout);
        (server, named)
    })?;
    with_replicas(found, timeout)
}

/// Asks each address of a host name which master it leads to. One that does not connect leads no
/// client anywhere.
fn add_masters_behind(server: &mut Server, peer: &Peer, timeout: Duration) {
    let limit = Limit::of_attempt(timeout, NEVER);
    let all = peer.route.addresses(&peer.endpoint, limit).unwrap_or_default();
    if all.len() < 2 {
        return;
    }
    let named = peer.clone();
    let asked = at_once(all, move |one| {
        let shown = one.as_socket().map_or_else(String::new, |address| address.to_string());
        let mut node = Node::new(named.only_at(one), timeout, None);
        let mut behind = Server::new(shown, Role::Server);
        facts::of_server(&mut node, &mut behind);
        (behind, node.has_connected)
    });
    let mut runs = BTreeMap::new();
    for (behind, has_connected) in asked.unwrap_or_default() {
        match (behind.facts.text("run_id"), behind.facts.text("role")) {
            (Some(run), Some("master")) => drop(runs.insert(run.to_owned(), behind.name)),
            (None, _) if has_connected && server.failure.is_none() => {
                let whys = behind.failure.into_iter().chain(behind.unanswered);
                let named = |why: UserMessage| {
                    why.reworded(|why| format!("address {} was not checked: {why}", behind.name))
                };
                server.unanswered.extend(whys.map(named));
            }
            _ => {}
        }
    }
    server.behind = runs.into_values().collect();
}

/// Looks at the replicas of these servers, too.
fn with_replicas(found: Vec<(Server, Peer)>, timeout: Duration) -> Result<Vec<Server>, Failure> {
    let mut replicas = Vec::new();
    for (server, peer) in &found {
        for replica in server.facts.replicas() {
            if let Ok(endpoint) = peer.named(replica.host, replica.port) {
                replicas.push((peer.at(endpoint), server.name.clone()));
            }
        }
    }
    let look = move |(peer, master): (Peer, String)| {
        let mut replica = Server { master: Some(master), ..Server::new(&peer, Role::Replica) };
        let mut node = Node::new(peer.clone(), timeout, None);
        facts::of_server(&mut node, &mut replica);
        if replica.facts.text("run_id").is_none() {
            let why = replica.unanswered.pop();
            let why = why.map(|why| why.with_remedy("give it the users of its master"));
            replica.failure = replica.failure.take().or(why);
            return replica;
        }
        let limit = Limit::of_attempt(timeout, NEVER);
        replica.certificates = wire::ending_certificates(&peer, limit, CERTIFICATE_ENDS_SOON);
        compare_clock(&mut replica, "tell the time", || {
            let time = wire::from_redis_value(node.ask(wire::cmd("TIME"), NEVER)?);
            let (seconds, _): (u64, u64) = time.map_err(|_| node.unexpected_reply())?;
            Ok(ServerTime(seconds.saturating_mul(1_000)))
        });
        replica
    };
    let replicas = at_once(replicas, look)?;
    Ok(found.into_iter().map(|(server, _)| server).chain(replicas).collect())
}

/// Adds what the connection to a server that answers shows.
fn add_route(server: &mut Server, peer: &Peer, timeout: Duration) {
    if server.failure.is_some() {
        return;
    }
    let limit = || Limit::of_attempt(timeout, NEVER);
    let found = peer.route.addresses(&peer.endpoint, limit()).unwrap_or_default();
    server.addresses = found.iter().filter_map(|it| Some(it.as_socket()?.ip())).collect();
    let is_remote = server.addresses.iter().any(|address| !address.is_loopback());
    server.is_plain = is_remote && peer.tls.is_none();
    server.certificates = wire::ending_certificates(peer, limit(), CERTIFICATE_ENDS_SOON);
}

/// Asks sentinels or nodes of a cluster for the masters, and then looks at these.
fn of_masters(
    seeds: &[Peer],
    [role, of_master]: [Role; 2],
    settings: ClientSettings,
    ask: impl Fn(&mut Node, &mut Server) -> Result<Masters, Failure> + Clone + Send + 'static,
) -> Result<Vec<Server>, Failure> {
    let timeout = settings.io_timeout;
    let asked = at_once(seeds.to_vec(), move |peer| {
        let mut server = Server::new(&peer, role);
        let mut node = Node::new(peer, timeout, None);
        let masters = ask(&mut node, &mut server);
        if let Err(failure) = &masters {
            failed(&mut server, "name the masters", failure);
        }
        unless_asked(&mut server, &node);
        add_route(&mut server, &node.peer, timeout);
        (server, masters.unwrap_or_default())
    })?;
    let (mut servers, known): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let mut masters = BTreeMap::new();
    for (master, slots) in known.into_iter().flatten() {
        let (_, all) = masters.entry(master.to_string()).or_insert((master, Vec::new()));
        all.push(slots);
    }
    // A node that answers is listed only if it has locks, and then only once.
    let has_failed =
        |it: &Server| it.failure.is_some() || it.steps.iter().any(|(_, step)| step.is_err());
    let is_listed = |it: &Server| has_failed(it) && !masters.contains_key(&it.name);
    servers.retain(|server| role == Role::Sentinel || is_listed(server));
    let probe = (role == Role::Sentinel).then_some(Probe::Role);
    let look = move |(peer, slots): (Peer, Vec<_>)| {
        (of_server(peer.clone(), of_master, probe, &slots, &settings), peer)
    };
    let mut found = at_once(masters.into_values().collect(), look)?;
    // Different names may stand for one server.
    let mut runs = BTreeSet::new();
    found.retain(|(it, _)| it.facts.text("run_id").is_none_or(|run| runs.insert(run.to_owned())));
    servers.extend(with_replicas(found, timeout)?);
    Ok(servers)
}

/// The master of the service, according to a sentinel.
fn of_service(
    node: &mut Node,
    server: &mut Server,
    service: &str,
    master: &Peer,
) -> Result<Masters, Failure> {
    let named = master.at(sentinel::ask(node, service)?);
    server.master = Some(named.to_string());
    let all = named.route.addresses(&named.endpoint, Limit::of_attempt(node.io_timeout, NEVER));
    server.master_addresses = all.iter().flatten().filter_map(SockAddr::as_socket).collect();
    facts::of_service(node, server, service);
    Ok(vec![(named, ALL_SLOTS)])
}

/// The masters of a cluster, according to one node.
fn of_cluster(node: &mut Node) -> Result<Masters, Failure> {
    let reply = node.ask(wire::cmd("CLUSTER").arg("SLOTS").to_owned(), NEVER)?;
    let masters = masters_in(&reply).ok_or_else(|| node.unexpected_reply())?;
    if masters.is_empty() {
        let what = format!("{} knows no master with hash slots", node.endpoint());
        return Err(Failure::unavailable(what, "assign them with redis-cli --cluster create"));
    }
    let named = |(slots, host, port): (_, String, _)| {
        Ok((node.peer.at(node.peer.named(&host, port)?), slots))
    };
    masters.into_iter().map(named).collect()
}
