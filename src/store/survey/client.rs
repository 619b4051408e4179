//! Does on a server what a client does, step by step, with locks that no other client uses.

use std::time::Duration;

use super::steps::{compare_clock, send, step, unless_asked};
use super::{ALL_SLOTS, ClientSettings, Slots, add_route};
use crate::rules::servers::{Role, Server};
use crate::rules::waiter::heartbeat;
use crate::rules::{
    Answer, Failure, Instant, Key, Outcome, Owner, Pattern, Renewal, Request, Token, Ttl,
};
use crate::store::cell::CellStore;
use crate::store::local::{Directory, LocalPlace, hazards};
use crate::store::quorum::PROMOTED;
use crate::store::server::cluster::slot_of;
use crate::store::server::scripts::keys;
use crate::store::server::{Node, Probe, RedisStore, facts};
use crate::store::wire::{self, Peer};
use crate::store::{Filter, NEVER, Store};
use crate::system::random;

/// How long the client that queues sleeps: long enough for one BLPOP.
const SLEEP: Duration = Duration::from_millis(1);

/// How many names are tried to find one in a hash slot of a node. With a hash tag in the prefix,
/// most nodes have none.
const NAMES: usize = 100_000;

/// Looks at a server that has locks; in a cluster, at those in its hash slots.
pub(super) fn of_server(
    peer: Peer,
    role: Role,
    probe: Option<Probe>,
    slots: &[Slots],
    settings: &ClientSettings,
) -> Server {
    let mut server = Server::new(&peer, role);
    let database = peer.database;
    let node = Node::new(peer, settings.io_timeout, probe);
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
    add_route(&mut server, &store.topology.peer, settings.io_timeout);
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

/// Looks at a directory of `local:`.
pub(super) fn of_directory(directory: &Directory, settings: &ClientSettings) -> Server {
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
