//! A cluster: each lock is on one of several masters, and clients find it wherever it moves.

use crate::support::*;

fn at(cluster: &Cluster) -> Client {
    Client::of(cluster.url())
}

/// The name of one lock on each master, in the order of the masters.
fn names(cluster: &Cluster) -> [String; 3] {
    [0, 1, 2].map(|master| {
        let mut names = (0..).map(|number| format!("L{number}"));
        names.find(|name| cluster.owner(0, &format!("rlock:{name}")) == Some(master)).unwrap()
    })
}

#[test]
fn a_lock_is_found_from_any_node() {
    let cluster = Cluster::start(3, 0);
    let names = names(&cluster);
    for seed in 0..3 {
        let client = Client::of(cluster.url_of(seed));
        let mut tokens = Vec::new();
        for (master, name) in names.iter().enumerate() {
            let output = client.run(&format!("acquire -v {name}")).exits(0);
            let moved = format!("MOVED {}", cluster.address(master));
            assert_eq!(output.err().contains(&moved), master != seed, "{output:?}");
            assert!(cluster.node(master).has(name));
            tokens.push(output.out());
        }
        let list = client.run("inspect").exits(0).shows("3 locks").out();
        assert!(names.iter().all(|name| list.contains(name)), "{list}");
        for (name, token) in names.iter().zip(tokens) {
            for act in ["inspect", "renew", "release"] {
                run(client.rlock(&format!("{act} {name}")).env("RLOCK_TOKEN", &token)).exits(0);
            }
        }
    }
    at(&cluster).run(&format!("exec {} true", names[1])).exits(0);
    // A URL that treats a node as a single server is rejected.
    let alone = Client::of(cluster.node(0).tcp_url());
    alone.run(&format!("exec {} true", names[1])).exits(78).says("redis+cluster://");
}

#[test]
fn a_check_of_a_lock_that_is_free_asks_no_other_master_for_its_settings() {
    let cluster = Cluster::start(3, 0);
    let ([name, ..], client) = (names(&cluster), Client::of(cluster.url_of(0)));
    let others = [cluster.node(1), cluster.node(2)];
    for (line, asked) in [("inspect --attention", false), ("inspect", true)] {
        others.iter().for_each(|node| drop(node.cli(&["CONFIG", "RESETSTAT"])));
        client.run(&format!("{line} {name}"));
        assert_eq!(others.map(|node| node.calls_of("info") > 0), [asked; 2], "{line}");
    }
}

#[test]
fn any_lock_can_be_acquired_and_the_documented_acl_rule_is_sufficient() {
    let cluster = Cluster::start(3, 0);
    // The server refuses keys of several slots.
    for prefix in ["rlock:", "", "{app}:", "a{b", "x{app}y", "{{a}:", "ä:"] {
        for name in ["L", "deploy:prod", "ä/ö", "-", &"x".repeat(200)] {
            let mut exec = at(&cluster).rlock("exec -n --prefix");
            run(exec.args([prefix, "--", name, "true"])).exits(0);
        }
    }
    let rule = rule("ci", &["+scan", "+asking", "+cluster|slots"]);
    (0..3).for_each(|node| set_up(cluster.node(node), &rule));
    let ci = at(&cluster).with_user("ci");
    for name in names(&cluster) {
        ci.acquire(&name);
    }
    ci.run("inspect").exits(0).shows("3 locks");
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
        let from = cluster.owner(0, &key).unwrap();
        let (slot, to) = (cluster.slot(&key), (from + 1) % 3);
        for (node, how, other) in [(to, "IMPORTING", from), (from, "MIGRATING", to)] {
            let id = cluster.id(other);
            assert_eq!(cluster.node(node).cli(&["CLUSTER", "SETSLOT", &slot, how, &id]), "OK");
        }
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
    let client = at(&cluster);
    let holder = client.holder("--ttl 9s L");
    let mut waiter = client.waiter("-v L");
    waiter.told("sleeping");

    let moving = Move::begin(&cluster, "L");
    let keys = moving.keys();
    assert!(keys.len() >= 3, "{keys:?}");
    // No node can decide now: a newcomer fails, while waiters and holders wait.
    for carried in [&keys[..1], &keys[1..]] {
        moving.carry(carried);
        client.run("acquire -n --io-timeout 300ms L").exits(69).says("is moving the lock");
    }
    let asked = cluster.node(moving.to).calls_of("asking");
    let patient = client.start("acquire -v -n --io-timeout 60s --ttl 240s L");
    until("it has asked at the new place too", || {
        cluster.node(moving.to).calls_of("asking") > asked + 20
    });
    moving.end();
    patient.end().exits(75);
    holder.finish().exits(0);
    waiter.end().exits(0).prints("ENTERED");
}

#[test]
fn locks_exclude_each_other_while_slots_move() {
    let cluster = Cluster::start(3, 0);
    let names = names(&cluster);
    let directory = cluster.node(0).directory();
    let client = at(&cluster).with("RLOCK_TTL", "9s");
    let twice = names.iter().chain(&names);
    let workers = twice.map(|name| client.worker(directory, name)).collect();
    // One name twice.
    for name in names.iter().cycle().take(4) {
        let moving = Move::begin(&cluster, name);
        while !moving.keys().is_empty() {
            moving.carry(&moving.keys());
        }
        moving.end();
    }
    took_turns(directory, &names, workers);
}

#[test]
fn a_frozen_node_in_the_url_delays_nothing_and_executes_no_request_without_its_withdrawal() {
    let cluster = Cluster::start(3, 0);
    let names = names(&cluster);
    let client = at(&cluster);
    let owner = cluster.node(0);
    // Which loads the script to acquire, but not the one to withdraw.
    client.acquire(&names[0]);
    owner.cli(&["FLUSHALL"]);
    owner.cli(&["CONFIG", "RESETSTAT"]);
    owner.signal("STOP");
    let mut longer = LongerWait::of("20s");
    for name in &names[1..] {
        client.run(&format!("exec -n --ttl 240s --io-timeout 60s {name} true")).exits(0);
    }
    longer.is_not_over();
    // Other nodes answer, so the command does not run without a lock.
    let exec = format!("exec -n --io-timeout 500ms --on-unreachable run {} true", names[0]);
    client.run(&exec).exits(69).says(&cluster.address(0));
    owner.signal("CONT");
    until("both have arrived", || owner.calls_of("evalsha") > 0 && owner.calls_of("eval") > 0);
    assert!(!owner.has(&names[0]));
    (0..3).for_each(|node| cluster.node(node).signal("STOP"));
    client.run(&exec).exits(0).says("running the command without a lock");
}

#[test]
fn a_dead_master_to_which_other_nodes_redirect_is_said_to_be_so() {
    let mut cluster = Cluster::start(3, 0);
    let [lost, ..] = names(&cluster);
    cluster.node_mut(0).kill();
    let told = "connection refused, and the cluster has not replaced it yet; wait for a failover";
    for line in [format!("exec {lost} true"), "inspect".into()] {
        at(&cluster).run(&line).exits(69).says(told);
    }
}

#[test]
fn a_dead_master_is_replaced_while_the_others_serve_locks() {
    let mut cluster = Cluster::start(3, 1);
    let [lost, kept, other] = names(&cluster);
    let client = at(&cluster);
    let sure = "--ttl 60s --min-replicas 1 --io-timeout 4s";
    let token = client.acquire(&format!("{sure} {lost}"));
    let waiter = client.waiter(&format!("--ttl 6s {lost}"));
    client.acquire(&format!("--ttl 60s {kept}"));

    cluster.node_mut(0).kill();
    client.run(&format!("exec {other} true")).exits(0);
    let listed = client.run("inspect");
    if listed.code() == 69 {
        assert!(listed.out().contains(&kept), "{listed:?}");
        assert!(listed.err().contains(&cluster.address(0)), "{listed:?}");
    }
    let begun = client.start(&format!("exec -w 1m {lost} echo ENTERED"));
    let key = format!("rlock:{lost}");
    until("all nodes know that the replica has taken over", || {
        (1..6).all(|node| cluster.owner(node, &key).is_some_and(|owner| owner != 0))
    });
    client.run(&format!("inspect {lost}")).exits(0);
    client.run(&format!("release {lost} {token}")).exits(0);
    for command in [waiter, begun] {
        command.end().exits(0).prints("ENTERED");
    }
    assert!(client.run("inspect").out().contains(&kept));
}
