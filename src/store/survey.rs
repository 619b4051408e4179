//! Looks at every server of a location: does there what a client does, and then asks about its
//! settings.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use socket2::SockAddr;

use super::cell::CellStore;
use super::denial;
use super::local::{Directory, LocalPlace, hazards};
use super::location::{Location, Sentinels};
use super::quorum::PROMOTED;
use super::server::cluster::{masters_in, slot_of};
use super::server::scripts::keys;
use super::server::{Node, Probe, RedisStore, facts, sentinel};
use super::wire::{self, Address, Cmd, Limit};
use super::{Filter, NEVER, Store};
use crate::rules::servers::{CERTIFICATE_ENDS_SOON, Role, Server, Survey};
use crate::rules::waiter::heartbeat;
use crate::rules::{
    Answer, Failure, FailureKind, Instant, Key, Name, Outcome, Owner, Pattern, Prefix, Renewal,
    Request, ServerTime, SystemCall, Token, Ttl, UserMessage,
};
use crate::system::{random, thread};

/// How long the client that queues sleeps: long enough for one BLPOP.
const SLEEP: Duration = Duration::from_millis(1);

/// How many names are tried to find one in a hash slot of a node. With a hash tag in the prefix,
/// most nodes have none.
const NAMES: usize = 100_000;

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
type Masters = Vec<(Address, Slots)>;

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
    servers: Vec<Address>,
    probe: Option<Probe>,
    settings: ClientSettings,
) -> Result<Vec<Server>, Failure> {
    let timeout = settings.io_timeout;
    let found = at_once(servers, move |address| {
        let named = address.clone();
        let mut server = of_server(address, Role::Server, probe, &[ALL_SLOTS], &settings);
        add_masters_behind(&mut server, &named, timeout);
        (server, named)
    })?;
    with_replicas(found, timeout)
}

/// Asks each address of a host name which master it leads to. One that does not connect leads no
/// client anywhere.
fn add_masters_behind(server: &mut Server, address: &Address, timeout: Duration) {
    let limit = Limit::new(timeout, NEVER);
    let all = address.route.addresses(&address.endpoint, limit).unwrap_or_default();
    if all.len() < 2 {
        return;
    }
    let named = address.clone();
    let asked = at_once(all, move |one| {
        let shown = one.as_socket().map_or_else(String::new, |address| address.to_string());
        let mut node = Node::new(named.only_at(one), timeout, None);
        let mut behind = Server::new(shown, Role::Server);
        facts::of_server(&mut node, &mut behind);
        (behind, node.has_sent)
    });
    let mut runs = BTreeMap::new();
    for (behind, has_sent) in asked.unwrap_or_default() {
        match (behind.facts.text("run_id"), behind.facts.text("role")) {
            (Some(run), Some("master")) => drop(runs.insert(run.to_owned(), behind.name)),
            (None, _) if has_sent && server.failure.is_none() => {
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
fn with_replicas(found: Vec<(Server, Address)>, timeout: Duration) -> Result<Vec<Server>, Failure> {
    let mut replicas = Vec::new();
    for (server, address) in &found {
        for replica in server.facts.replicas() {
            if let Ok(endpoint) = address.named(replica.host, replica.port) {
                replicas.push((address.at(endpoint), server.name.clone()));
            }
        }
    }
    let look = move |(address, master): (Address, String)| {
        let mut replica = Server { master: Some(master), ..Server::new(&address, Role::Replica) };
        let mut node = Node::new(address.clone(), timeout, None);
        facts::of_server(&mut node, &mut replica);
        if replica.facts.text("run_id").is_none() {
            let why = replica.unanswered.pop();
            let why = why.map(|why| why.with_remedy("give it the users of its master"));
            replica.failure = replica.failure.take().or(why);
            return replica;
        }
        let limit = Limit::new(timeout, NEVER);
        replica.certificates = wire::ending_certificates(&address, limit, CERTIFICATE_ENDS_SOON);
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

/// Looks at a server that has locks; in a cluster, at those in its hash slots.
fn of_server(
    address: Address,
    role: Role,
    probe: Option<Probe>,
    slots: &[Slots],
    settings: &ClientSettings,
) -> Server {
    let mut server = Server::new(&address, role);
    let database = address.database;
    let node = Node::new(address, settings.io_timeout, probe);
    let mut store = RedisStore::new(node, database, settings.min_replicas);
    if let Some(key) = free_key(settings, slots) {
        let tokens = exercise(&mut server, &mut store, &key);
        let node = &mut store.topology;
        unless_asked(&mut server, node);
        // The scripts above may have been known, but a restarted server knows none.
        let load = wire::cmd("EVAL").arg("return 1").arg(0).to_owned();
        send(&mut server, "load scripts", node, &[load]);
        // A user who may use only some locks lists none.
        if settings.beside.is_none() {
            let mut scan = wire::cmd("SCAN");
            scan.arg(0).arg("MATCH").arg(key.as_str()).arg("TYPE").arg("string");
            send(&mut server, "list", node, &[scan]);
        }
        let of = |name: &str, side: &str| wire::cmd(name).arg(key.side(side)).to_owned();
        let mut pruning = vec![
            of("LTRIM", "history").arg(0).arg(-1).to_owned(),
            of("LREM", "history").arg(1).arg("").to_owned(),
            of("ZREMRANGEBYRANK", "tombstones").arg(0).arg(0).to_owned(),
            of("HGET", "state").arg("").to_owned(),
        ];
        pruning.extend((role == Role::Node).then(|| wire::cmd("ASKING")));
        send(&mut server, "prune", node, &pruning);
        if probe == Some(Probe::Run) {
            let (mark, mut run) = (Key::pattern(&settings.prefix).shared(PROMOTED), None);
            step(&mut server, "vote", || {
                node.ask_promotion()?;
                run = node.run_as_master(&mark)?;
                Ok(())
            });
            server.began = run.map(|it| (it.began, Instant::now().since(it.since)));
        }
        let made = tokens.iter().flat_map(|token| keys(&key, token.as_str()));
        let remove = wire::cmd("UNLINK").arg(made.collect::<Vec<_>>()).to_owned();
        match server.steps.first() {
            Some((_, Ok(_))) if server.failure.is_none() => {
                send(&mut server, "clean up", node, &[remove]);
            }
            // It has answered, so it may have made them.
            Some(_) => drop(node.ask(remove, NEVER)),
            None => {}
        }
        name_keys(&mut server, settings);
    }
    facts::of_server(&mut store.topology, &mut server);
    add_route(&mut server, &store.topology.address, settings.io_timeout);
    server
}

/// A user who may not use the keys of any lock may use those of one, or should.
fn name_keys(server: &mut Server, settings: &ClientSettings) {
    let remedy = match &settings.beside {
        None => "add the NAME of a lock that this user may use".to_owned(),
        Some(name) => {
            let key = Key::new(&settings.prefix, name);
            format!("allow ~{} and ~{}", key.as_str(), key.sides())
        }
    };
    for why in server.steps.iter_mut().filter_map(|(_, step)| step.as_mut().err()) {
        if why.problem().ends_with("denies permission for the lock's keys") {
            *why = why.clone().with_remedy(remedy.clone());
        }
    }
}

/// Adds what the connection to a server that answers shows.
fn add_route(server: &mut Server, address: &Address, timeout: Duration) {
    if server.failure.is_some() {
        return;
    }
    let limit = || Limit::new(timeout, NEVER);
    let found = address.route.addresses(&address.endpoint, limit()).unwrap_or_default();
    server.addresses = found.iter().filter_map(|it| Some(it.as_socket()?.ip())).collect();
    let is_remote = server.addresses.iter().any(|address| !address.is_loopback());
    server.is_plain = is_remote && address.tls.is_none();
    server.certificates = wire::ending_certificates(address, limit(), CERTIFICATE_ENDS_SOON);
}

/// Asks sentinels or nodes of a cluster for the masters, and then looks at these.
fn of_masters(
    seeds: &[Address],
    [role, of_master]: [Role; 2],
    settings: ClientSettings,
    ask: impl Fn(&mut Node, &mut Server) -> Result<Masters, Failure> + Clone + Send + 'static,
) -> Result<Vec<Server>, Failure> {
    let timeout = settings.io_timeout;
    let asked = at_once(seeds.to_vec(), move |address| {
        let mut server = Server::new(&address, role);
        let mut node = Node::new(address, timeout, None);
        let masters = ask(&mut node, &mut server);
        if let Err(failure) = &masters {
            failed(&mut server, "name the masters", failure);
        }
        unless_asked(&mut server, &node);
        add_route(&mut server, &node.address, timeout);
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
    let look = move |(address, slots): (Address, Vec<_>)| {
        (of_server(address.clone(), of_master, probe, &slots, &settings), address)
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
    master: &Address,
) -> Result<Masters, Failure> {
    let named = master.at(sentinel::ask(node, service)?);
    server.master = Some(named.to_string());
    let all = named.route.addresses(&named.endpoint, Limit::new(node.io_timeout, NEVER));
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
        Ok((node.address.at(node.address.named(&host, port)?), slots))
    };
    masters.into_iter().map(named).collect()
}

fn of_directory(directory: &Directory, settings: &ClientSettings) -> Server {
    let shown = format!("local:{}", directory.path().display());
    let mut server = Server::new(shown, Role::Directory);
    if directory.is_chosen_but_missing() {
        match directory.may_be_created() {
            Ok(parent) => server.facts = hazards::of(&parent),
            Err(failure) => server.failure = Some(failure.fault.clone()),
        }
        return server;
    }
    let mut store = CellStore::new(LocalPlace::new(directory.clone()), settings.io_timeout);
    if let Some(key) = free_key(settings, &[ALL_SLOTS]) {
        exercise(&mut server, &mut store, &key);
        step(&mut server, "list", || {
            let pattern = Pattern::new(&Pattern::escape(key.as_str())).ok();
            let prefix = settings.prefix.clone();
            store.list(&Filter { prefix, pattern, with_free: false }).map(|_| ())
        });
        step(&mut server, "clean up", || directory.forget(&key));
    }
    server.facts = hazards::of(directory);
    server
}

/// The key of a lock that no other client uses, in one of these hash slots; `None` if they can have
/// no lock.
fn free_key(settings: &ClientSettings, slots: &[Slots]) -> Option<Key> {
    let prefix = &settings.prefix;
    let key = || {
        let name = format!("inspect-servers-{}", new_token().as_str());
        match &settings.beside {
            Some(lock) => Some(Key::new(prefix, lock).beside_it(&name)),
            None => Some(Key::new(prefix, &name.parse().ok()?)),
        }
    };
    let serves = |key: &Key| slots.iter().any(|slots| slots.contains(&slot_of(key)));
    let tries = if settings.beside.is_some() { 1 } else { NAMES };
    std::iter::repeat_with(key).take(tries).flatten().find(serves)
}

fn new_token() -> Token {
    Token::new(random::bytes())
}

/// Holds the lock, lets a second client wait for it, and releases it. Ends early if the server does
/// not answer. Returns the tokens of the clients.
fn exercise(server: &mut Server, store: &mut dyn Store, key: &Key) -> [Token; 2] {
    // So that nothing stays for long if this is killed.
    let ttl = Ttl::DEFAULT;
    let request = || Request::plain(key.clone(), new_token(), Owner::new(random::bytes()), ttl);
    let hold = request();
    let heartbeat = Some(heartbeat(ttl.get()));
    let waiter = Request { heartbeat, ..request() };
    let token = &hold.token;
    let mut is_held = false;
    step(server, "acquire", || match store.acquire(&hold, NEVER)? {
        Answer::Granted { .. } => {
            is_held = true;
            Ok(())
        }
        _ => Err(Failure::unavailable("a lock that is free was not granted", "check the server")),
    });
    let tokens = [hold.token.clone(), waiter.token.clone()];
    if !is_held {
        return tokens;
    }
    step(server, "wait", || {
        if let Answer::Queued { .. } = store.acquire(&waiter, NEVER)? {
            store.sleep(&waiter, SLEEP, NEVER)?;
        }
        store.withdraw(&waiter, NEVER)
    });
    step(server, "renew", || match store.renew(key, token, Some(ttl), NEVER)? {
        Renewal::NotHeld(why) => {
            Err(Failure::unavailable(format!("a new hold {why}"), "check the server"))
        }
        _ => Ok(()),
    });
    compare_clock(server, "inspect", || Ok(store.inspect(key)?.now));
    step(server, "release", || store.release(key, token, Outcome::Unknown).map(|_| ()));
    tokens
}

/// Times a step that tells the server's time.
fn compare_clock(
    server: &mut Server,
    name: &'static str,
    ask: impl FnOnce() -> Result<ServerTime, Failure>,
) {
    let (mut before, mut now) = (Instant::now(), None);
    step(server, name, || {
        before = Instant::now();
        now = Some(ask()?);
        Ok(())
    });
    if let Some(ServerTime(now)) = now {
        let middle = (before.since_boot() + Instant::now().since_boot()) / 2;
        server.clock = Some(Duration::from_millis(now).saturating_sub(middle));
    }
}

/// Times one step, unless the server has not answered an earlier one.
fn step(server: &mut Server, name: &'static str, act: impl FnOnce() -> Result<(), Failure>) {
    if server.failure.is_some() {
        return;
    }
    let started = Instant::now();
    match act() {
        Ok(()) => server.steps.push((name, Ok(Instant::now().since(started)))),
        Err(failure) => failed(server, name, &failure),
    }
}

/// Times a step that sends these commands.
fn send(server: &mut Server, name: &'static str, node: &mut Node, commands: &[Cmd]) {
    let mut asked = commands.iter().map(|command| node.ask(command.clone(), NEVER));
    step(server, name, || Ok(asked.try_for_each(|reply| reply.map(drop))?));
}

/// Without a connection, every other step would fail as the first one has.
fn unless_asked(server: &mut Server, node: &Node) {
    if !node.has_sent && server.failure.is_none() {
        let steps = std::mem::take(&mut server.steps);
        server.failure = steps.into_iter().find_map(|(_, step)| step.err());
    }
}

fn failed(server: &mut Server, name: &'static str, failure: &Failure) {
    let why = failure.fault.clone();
    server.is_denied = failure.kind == FailureKind::Misconfigured;
    if !failure.is_unreachable() {
        server.steps.push((name, Err(why)));
    } else if server.answers() {
        server.failure = Some(why.reworded(|why| format!("cannot {name}: {why}")));
    } else {
        server.failure = Some(why);
    }
}
