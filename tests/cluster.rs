//! A cluster: each lock is on one of several masters, and clients find it wherever it moves.

use std::fs;
use std::process::Command;

use crate::support::acl::{TO_INSPECT, as_ci, rule, set_up};
use crate::support::cluster::Cluster;
use crate::support::{Finished, LongerWait, READY, Running, binary, rlock, run, until};

fn at(url: &str, arguments: &[&str]) -> Command {
    let mut command = rlock(arguments);
    command.env("RLOCK_URL", url);
    command
}

/// The name of one lock on each master, in the order of the masters.
fn names(cluster: &Cluster, masters: usize) -> Vec<String> {
    let of = |master: usize| {
        let mut names = (0..).map(|number| format!("L{number}"));
        names.find(|name| cluster.owner(0, &format!("rlock:{name}")) == master).unwrap()
    };
    (0..masters).map(of).collect()
}

#[test]
fn a_lock_is_found_from_any_node() {
    let cluster = Cluster::start(3, 0);
    let names = names(&cluster, 3);
    for seed in 0..3 {
        let url = cluster.url_of(seed);
        let mut tokens = Vec::new();
        for (master, name) in names.iter().enumerate() {
            let output = run(&mut at(&url, &["acquire", "-v", name])).exits(0);
            let moved = format!("MOVED {}", cluster.address(master));
            assert_eq!(output.err().contains(&moved), master != seed, "{output:?}");
            assert_eq!(cluster.node(master).cli(&["EXISTS", &format!("rlock:{name}")]), "1");
            tokens.push(output.out());
        }
        let mut sorted = names.clone();
        sorted.sort();
        let list = run(&mut at(&url, &["inspect"])).out();
        let listed: Vec<&str> =
            list.lines().skip(1).take(3).map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(listed, sorted);
        assert!(list.ends_with("3 locks"), "{list}");
        for (name, token) in names.iter().zip(tokens) {
            assert_eq!(run(&mut at(&url, &["inspect", name])).code(), 0);
            assert_eq!(run(&mut at(&url, &["renew", name, &token])).code(), 0);
            assert_eq!(run(&mut at(&url, &["release", name, &token])).code(), 0);
        }
    }
    run(&mut at(&cluster.url(), &["exec", &names[1], "true"])).exits(0);
    // A URL that treats a node as a single server is rejected.
    let alone = cluster.url_of(0).replace("+cluster", "");

    run(&mut at(&alone, &["exec", &names[1], "true"])).exits(78).says("redis+cluster://");
}

#[test]
fn all_keys_of_a_lock_hash_to_one_slot_according_to_the_server() {
    let cluster = Cluster::start(3, 0);
    for prefix in ["rlock:", "", "{app}:", "a{b", "x{app}y", "{{a}:", "ä:"] {
        for name in ["L", "deploy:prod", "ä/ö", "-", &"x".repeat(200)] {
            let key = format!("{prefix}{name}");
            let has_tag = prefix.split_once('{').is_some_and(|(_, rest)| rest.contains('}'));
            let side = if has_tag { key.clone() } else { format!("{{{key}}}") };
            for what in ["holds", "state", "queue", "mail:t"] {
                assert_eq!(cluster.slot(&key), cluster.slot(&format!("{side}:{what}")), "{key}");
            }
            // And these are the keys: the server refuses any other mix.
            let exec = ["exec", "-n", "--prefix", prefix, "--", name, "true"];
            run(&mut at(&cluster.url(), &exec)).exits(0);
        }
    }
}

#[test]
fn the_documented_acl_rule_is_sufficient() {
    let cluster = Cluster::start(3, 0);
    let rule = rule(&[&TO_INSPECT[..], &["+asking", "+cluster|slots"]].concat());
    (0..3).for_each(|node| set_up(cluster.node(node), &rule));
    for name in names(&cluster, 3) {
        let output = as_ci(&mut at(&cluster.url(), &["acquire", &name]));
        assert_eq!(output.code(), 0, "{output:?}");
    }
    let output = as_ci(&mut at(&cluster.url(), &["inspect"]));
    assert_eq!((output.code(), output.out().lines().count()), (0, 5), "{output:?}");
}

#[test]
fn a_withdrawal_arrives_after_the_unanswered_request() {
    let cluster = Cluster::start(3, 0);
    let name = names(&cluster, 1).remove(0);
    let owner = cluster.node(cluster.owner(0, &format!("rlock:{name}")));
    // Enough permissions to acquire, but not to withdraw.
    run(&mut at(&cluster.url(), &["acquire", "--ttl", "2s", &name])).exits(0);
    owner.cli(&["CONFIG", "RESETSTAT"]);
    until("it is free", || owner.cli(&["EXISTS", &format!("rlock:{name}")]) == "0");
    owner.signal("STOP");
    let exec = ["exec", "-n", "--io-timeout", "600ms", "--ttl", "60s", &name, "true"];
    assert_eq!(run(&mut at(&cluster.url(), &exec)).code(), 69);
    owner.signal("CONT");
    until("both have arrived", || owner.calls_of("evalsha") > 0 && owner.calls_of("eval") > 0);
    assert_eq!(owner.cli(&["EXISTS", &format!("rlock:{name}")]), "0");
}

/// Moves the slot of a lock, step by step.
struct Move<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl<'a> Move<'a> {
    fn begin(cluster: &'a Cluster, name: &str) -> Self {
        let key = format!("rlock:{name}");
        let from = cluster.owner(0, &key);
        let (slot, to) = (cluster.slot(&key), (from + 1) % 3);
        let set = |node: usize, how: &str, other: usize| {
            let id = cluster.id(other);
            assert_eq!(cluster.node(node).cli(&["CLUSTER", "SETSLOT", &slot, how, &id]), "OK");
        };
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
        Self { cluster, slot, from, to }
    }

    fn keys(&self) -> Vec<String> {
        let keys =
            self.cluster.node(self.from).cli(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "99"]);
        keys.lines().filter(|key| !key.is_empty()).map(str::to_owned).collect()
    }

    fn carry(&self, keys: &[String]) {
        let port = self.cluster.node(self.to).port().to_string();
        for key in keys {
            let migrate = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
            assert_eq!(self.cluster.node(self.from).cli(&migrate), "OK");
        }
    }

    fn end(self) {
        for node in [self.to, self.from, (self.to + 1) % 3] {
            let id = self.cluster.id(self.to);
            self.cluster.node(node).cli(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
        }
        self.cluster.await_agreement();
    }
}

#[test]
fn a_lock_whose_keys_are_half_moved_makes_clients_wait_and_is_never_granted_twice() {
    let cluster = Cluster::start(3, 0);
    let url = cluster.url();
    let exec = ["exec", "--ttl", "9s", "L", "sh", "-c", READY];
    let holder = Running::start(&mut at(&url, &exec)).prints_first("READY");
    let mut waiter = Running::start(&mut at(&url, &["exec", "-v", "L", "echo", "ENTERED"]));
    waiter.told("sleeping");

    let moving = Move::begin(&cluster, "L");
    let keys = moving.keys();
    assert!(keys.len() >= 3, "{keys:?}");
    moving.carry(&keys[..1]);
    // No node can decide now: a newcomer fails, while waiters and holders wait.
    let newcomer = ["acquire", "-n", "--io-timeout", "300ms", "L"];
    run(&mut at(&url, &newcomer)).exits(69).says("is moving the lock");
    moving.carry(&keys[1..]);
    assert_eq!(run(&mut at(&url, &newcomer)).code(), 69);
    let asked = cluster.node(moving.to).calls_of("asking");
    let ask = ["acquire", "-v", "-n", "--io-timeout", "60s", "--ttl", "240s", "L"];
    let patient = Running::start(&mut at(&url, &ask));
    until("it has asked at the new place too", || {
        cluster.node(moving.to).calls_of("asking") > asked + 20
    });
    moving.end();
    patient.end().exits(75);
    assert_eq!(holder.finish().code(), 0);
    waiter.end().exits(0).prints("ENTERED");
}

#[test]
fn locks_exclude_each_other_while_slots_move() {
    let cluster = Cluster::start(3, 0);
    let names = names(&cluster, 3);
    let directory = cluster.node(0).directory();
    let stop = directory.join("stop");
    // Each turn reads a number, waits briefly, and writes the next. Two at once would lose a count.
    // A worker ends with the number of its turns.
    let start = |name: &String| -> Running {
        let file = directory.join(name);
        fs::write(&file, "0").unwrap();
        let turn = "n=$(cat \"$0\"); sleep 0.02; echo $((n + 1)) > \"$0\"";
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!(
            "turns=0; until [ -e \"$2\" ]; do \"$0\" exec --ttl 9s {name} sh -c '{turn}' \"$1\" || exit; \
             turns=$((turns + 1)); done; echo $turns"
        ));
        shell.arg(binary()).arg(&file).arg(&stop).env("RLOCK_URL", cluster.url());
        Running::start(&mut shell)
    };
    let workers: Vec<[Running; 2]> = names.iter().map(|name| [start(name), start(name)]).collect();
    // One name twice.
    for name in names.iter().cycle().take(4) {
        let moving = Move::begin(&cluster, name);
        while !moving.keys().is_empty() {
            moving.carry(&moving.keys());
        }
        moving.end();
    }
    fs::write(&stop, "").unwrap();
    for (name, workers) in names.iter().zip(workers) {
        let turns = workers.map(|worker| {
            let output = worker.end().exits(0);
            output.out().parse::<usize>().unwrap()
        });
        let count: usize =
            fs::read_to_string(directory.join(name)).unwrap().trim().parse().unwrap();
        assert_eq!(count, turns.iter().sum::<usize>(), "{name}");
    }
}

#[test]
fn a_frozen_node_in_the_url_delays_nothing() {
    let cluster = Cluster::start(3, 0);
    let names = names(&cluster, 3);
    cluster.node(0).signal("STOP");
    let url = cluster.url();
    let mut longer = LongerWait::of("20s");
    for name in &names[1..] {
        let exec = ["exec", "-n", "--ttl", "240s", "--io-timeout", "60s", name, "true"];
        run(&mut at(&url, &exec)).exits(0);
    }
    longer.is_not_over();
    // Other nodes answer, so the command does not run without a lock.
    let mut exec = vec!["exec", "-n", "--io-timeout", "500ms", "--on-unreachable", "run"];
    exec.extend([&names[0], "true"]);
    let output = run(&mut at(&url, &exec)).exits(69);
    assert!(output.err().contains(&cluster.address(0)), "{output:?}");
    cluster.node(0).signal("CONT");
}

#[test]
fn a_release_that_is_redirected_to_a_slow_master_succeeds() {
    let cluster = Cluster::start(3, 0);
    let name = names(&cluster, 1).remove(0);
    let token = run(&mut at(&cluster.url(), &["acquire", "--ttl", "240s", &name])).out();
    let (owner, others) = (cluster.node(0), [cluster.node(1), cluster.node(2)]);
    for other in others {
        other.cli(&["CONFIG", "RESETSTAT"]);
    }
    owner.signal("STOP");
    let release = ["release", "-v", "--io-timeout", "60s", &name, &token];
    let release = Running::start(&mut at(&cluster.url(), &release));
    until("another node has redirected it", || {
        let stats = others.map(|other| other.cli(&["INFO", "commandstats"]));
        stats.concat().contains("rejected_calls=1")
    });
    owner.signal("CONT");
    release.end().exits(0);
    assert_eq!(run(&mut at(&cluster.url(), &["inspect", &name])).code(), 1);
}

#[test]
fn if_every_node_is_frozen_each_request_takes_one_timeout() {
    let cluster = Cluster::start(3, 0);
    (0..3).for_each(|node| cluster.node(node).signal("STOP"));
    // Nearly two timeouts.
    let mut longer = LongerWait::of("3900ms");
    let exec = ["exec", "-n", "--io-timeout", "2s", "--on-unreachable", "run", "L", "true"];
    let output = run(&mut at(&cluster.url(), &exec));
    longer.is_not_over();
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(output.err().contains("running the command without a lock"), "{output:?}");
    (0..3).for_each(|node| cluster.node(node).signal("CONT"));
}

#[test]
fn a_dead_master_is_replaced_while_the_others_serve_locks() {
    let mut cluster = Cluster::start(3, 1);
    let names = names(&cluster, 3);
    let (url, lost) = (cluster.url(), &names[0]);
    let sure = ["--min-replicas", "1", "--io-timeout", "4s"];
    let exec = [&["acquire", "--ttl", "60s"], &sure[..], &[lost]].concat();
    let token = run(&mut at(&url, &exec)).out();
    let mut waiter =
        Running::start(&mut at(&url, &["exec", "--ttl", "6s", lost, "echo", "ENTERED"]));
    waiter.told("waiting at position 1");
    assert_eq!(run(&mut at(&url, &["acquire", "--ttl", "60s", &names[1]])).code(), 0);

    cluster.node_mut(0).kill();
    assert_eq!(run(&mut at(&url, &["exec", &names[2], "true"])).code(), 0, "the others go on");
    let listed = run(&mut at(&url, &["inspect"]));
    let key = format!("rlock:{lost}");
    if listed.code() == 69 {
        assert!(listed.out().contains(&names[1]), "{listed:?}");
        assert!(listed.err().contains(&cluster.address(0)), "{listed:?}");
    }
    let begun = Running::start(&mut at(&url, &["exec", "-w", "1m", lost, "echo", "ENTERED"]));
    until("the replica has taken over", || {
        let owner = cluster.owner(1, &key);
        owner != 0
            && owner != usize::MAX
            && cluster.node(1).cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    });
    run(&mut at(&url, &["inspect", lost])).exits(0);
    assert_eq!(run(&mut at(&url, &["release", lost, &token])).code(), 0);
    for output in [waiter.end(), begun.end()] {
        assert_eq!((output.code(), output.out().as_str()), (0, "ENTERED"), "{output:?}");
    }
    assert!(run(&mut at(&url, &["inspect"])).out().contains(&names[1]));
}
