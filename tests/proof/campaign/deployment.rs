//! The servers, which live for a whole campaign, and how each fault hits them.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::faults::{WORKERS, What, Wires};
use super::kind::Kind;
use crate::support::cluster::Cluster;
use crate::support::proxy::Proxy;
use crate::support::sentinels::Service;
use crate::support::{Server, until};

enum Servers {
    One(Server),
    Files(TempDir),
    Sentinel(Service),
    Cluster(Cluster),
    Quorum(Vec<Server>),
}

/// A slot on its way between two nodes of a cluster.
struct Move {
    slot: String,
    from: usize,
    to: usize,
}

pub struct Deployment {
    kind: Kind,
    servers: Servers,
    /// By worker, and by server. Empty if clients find the servers by themselves.
    wires: Vec<Vec<Proxy>>,
    /// The numbers of the servers that do not answer now; for Sentinel their ports.
    away: Vec<usize>,
    minority: usize,
    moving: Option<Move>,
    /// By server, how many microseconds its clock is ahead of where it started.
    clocks: Vec<i64>,
    /// The sum of all steps forward in this round, in microseconds.
    hurried: u64,
}

const OWN_FILES: [&str; 2] = ["--appendonly", "yes"];

impl Deployment {
    pub fn start(kind: Kind) -> Self {
        let servers = match kind {
            Kind::Server => {
                let unforced = ["--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];
                let options = [&OWN_FILES[..], &unforced].concat();
                Servers::One(Server::with_clock(Duration::ZERO, &options))
            }
            Kind::Files => {
                Servers::Files(tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap())
            }
            Kind::Sentinel => Servers::Sentinel(Service::start(2, &[], &[])),
            Kind::Cluster => Servers::Cluster(Cluster::start(3, 1)),
            Kind::Quorum(count) => {
                let start = |number| Server::with_clock(kind.ahead(number), &[]);
                Servers::Quorum((0..count).map(start).collect())
            }
        };
        let ports: Vec<u16> = match &servers {
            Servers::One(server) => vec![server.port()],
            Servers::Quorum(servers) => servers.iter().map(Server::port).collect(),
            _ => Vec::new(),
        };
        let to = |port: &u16| Proxy::to(*port, Duration::ZERO);
        let wires = (0..WORKERS).map(|_| ports.iter().map(to).collect()).collect();
        let (away, minority) = (Vec::new(), kind.minority());
        let clocks = vec![0; ports.len()];
        Self { kind, servers, wires, away, minority, moving: None, clocks, hurried: 0 }
    }

    /// The URL for a worker.
    pub fn url(&self, worker: usize) -> String {
        match &self.servers {
            Servers::One(_) | Servers::Quorum(_) => {
                self.wires[worker].iter().map(Proxy::url).collect::<Vec<_>>().join(" ")
            }
            // So that not all workers ask the same one first.
            Servers::Sentinel(service) => rotated(&service.url(), worker),
            Servers::Cluster(cluster) => rotated(&cluster.url(), worker),
            Servers::Files(_) => self.direct_url(),
        }
    }

    /// The URL for an operator, whose network is never cut.
    pub fn direct_url(&self) -> String {
        match &self.servers {
            Servers::One(server) => server.tcp_url(),
            Servers::Files(directory) => format!("local:{}", directory.path().display()),
            Servers::Sentinel(service) => service.url(),
            Servers::Cluster(cluster) => cluster.url(),
            Servers::Quorum(servers) => {
                servers.iter().map(Server::tcp_url).collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// The same URLs for an operator of a quorum, with each server first once; empty without one.
    pub fn orders(&self) -> Vec<String> {
        let Servers::Quorum(servers) = &self.servers else { return Vec::new() };
        let mut urls: Vec<String> = servers.iter().map(Server::tcp_url).collect();
        let orders = (0..urls.len()).map(|_| {
            urls.rotate_left(1);
            urls.join(" ")
        });
        orders.collect()
    }

    pub fn processes(&self) -> Vec<u32> {
        match &self.servers {
            Servers::One(server) => vec![server.process()],
            Servers::Files(_) => Vec::new(),
            Servers::Sentinel(service) => service.servers().iter().map(Server::process).collect(),
            Servers::Cluster(cluster) => {
                (0..cluster.count()).map(|node| cluster.node(node).process()).collect()
            }
            Servers::Quorum(servers) => servers.iter().map(Server::process).collect(),
        }
    }

    /// Sets all clocks as they were at the start.
    pub fn reset_clocks(&mut self) {
        self.hurried = 0;
        for server in 0..self.clocks.len() {
            self.clocks[server] = 0;
            self.set_clock(server);
        }
    }

    fn set_clock(&mut self, number: usize) {
        let start = i64::try_from(self.kind.ahead(number).as_micros()).unwrap();
        let ahead = start + self.clocks[number];
        self.server(number).set_clock(ahead);
    }

    /// The sum of all steps of clocks forward since the start of the round, in microseconds. No clock
    /// is further ahead.
    pub fn hurried(&self) -> u64 {
        self.hurried
    }

    /// Grows with every failover.
    pub fn epoch(&self) -> u64 {
        match &self.servers {
            Servers::Sentinel(service) => service.epoch(),
            Servers::Cluster(cluster) => {
                let told = cluster.node(0).cli(&["CLUSTER", "INFO"]);
                let mut lines = told.lines();
                let epoch = lines.find_map(|line| line.strip_prefix("cluster_current_epoch:"));
                epoch.unwrap().trim().parse().unwrap()
            }
            _ => 0,
        }
    }

    /// Begins a fault. Returns false if it cannot happen now, because another one lasts.
    pub fn begin(&mut self, what: What, lock: &str) -> bool {
        let key = format!("rlock:{lock}");
        match what {
            What::Part(wires) => self.each_wire(wires, |wire| wire.part(true)),
            What::Delay(wires, delay) => self.each_wire(wires, |wire| wire.delay(delay)),
            What::BreakReply(wires, bytes) => {
                self.each_wire(wires, |wire| wire.break_reply_after(bytes));
            }
            What::StopSentinels(which) => self.signal_sentinels(which, "STOP"),
            What::MoveSlot => return self.begin_move(&key),
            What::FailOver => return self.request_failover(&key),
            What::KillMaster | What::KillServer(_) => {
                let Some(number) = self.reachable(what, &key) else { return false };
                self.server(number).kill();
                self.away.push(number);
            }
            What::Freeze | What::FreezeServer(_) | What::FreezeReplica => {
                let Some(number) = self.reachable(what, &key) else { return false };
                self.server(number).signal("STOP");
                self.away.push(number);
            }
            What::RefuseServer(_) => {
                let Some(number) = self.reachable(what, &key) else { return false };
                self.server(number).cli(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
                self.away.push(number);
            }
            What::RestartEmpty(_) | What::RestartWithData => {
                let Some(number) = self.reachable(what, &key) else { return false };
                let server = self.server(number);
                server.kill();
                if what != What::RestartWithData {
                    let _ = fs::remove_dir_all(server.directory().join("appendonlydir"));
                    let _ = fs::remove_file(server.directory().join("appendonly.aof"));
                }
                server.start_again();
            }
            What::Flush | What::DeleteKey if matches!(self.servers, Servers::Files(_)) => {
                return self.remove_files(what, lock);
            }
            What::Flush => return self.tell(what, &key, &["FLUSHALL"]),
            What::DeleteKey | What::DeleteKeyOf(_) => {
                return self.tell(what, &key, &["DEL", &key]);
            }
            What::KillConnections => {
                return self.tell(what, &key, &["CLIENT", "KILL", "TYPE", "normal"]);
            }
            What::StepClock(server, millis) => {
                self.clocks[server] += millis * 1_000;
                self.hurried += u64::try_from(millis * 1_000).unwrap_or(0);
                self.set_clock(server);
            }
            What::Stop(_) | What::Kill(_) | What::Terminate(_) | What::Revoke | What::Free => {}
        }
        true
    }

    /// Ends a fault that `begin` began. Returns once the servers have recovered.
    pub fn end(&mut self, what: What) {
        match what {
            What::Part(wires) => self.each_wire(wires, |wire| wire.part(false)),
            What::Delay(wires, _) => self.each_wire(wires, |wire| wire.delay(Duration::ZERO)),
            What::StopSentinels(which) => self.signal_sentinels(which, "CONT"),
            What::MoveSlot => self.end_move(),
            What::Freeze | What::FreezeServer(_) | What::FreezeReplica => {
                if let Some(number) = self.back(what) {
                    self.server(number).signal("CONT");
                }
            }
            What::RefuseServer(_) => {
                if let Some(number) = self.back(what) {
                    self.server(number).cli(&["ACL", "SETUSER", "default", "+@all"]);
                }
            }
            What::KillMaster => self.replace_master(),
            What::KillServer(_) => {
                if let Some(number) = self.back(what) {
                    self.server(number).start_again();
                }
            }
            _ => {}
        }
    }

    /// Waits until all servers work again and can grant leases of any length in the plans.
    pub fn heal(&mut self) {
        for wire in self.wires.iter().flatten() {
            wire.break_reply_after(usize::MAX);
            wire.cut();
        }
        match &self.servers {
            Servers::Sentinel(service) => service.await_replicas(),
            Servers::Cluster(cluster) => cluster.await_agreement(),
            Servers::Quorum(servers) => {
                servers.iter().for_each(|server| server.await_uptime(3));
            }
            _ => {}
        }
    }

    fn each_wire(&self, hit: Wires, act: impl Fn(&Proxy)) {
        for (hit, wires) in hit.iter().zip(&self.wires) {
            let is_hit = |(number, _): &(usize, &Proxy)| hit & (1 << number) != 0;
            wires.iter().enumerate().filter(is_hit).for_each(|(_, wire)| act(wire));
        }
    }

    fn signal_sentinels(&self, which: u64, signal: &str) {
        if let Servers::Sentinel(service) = &self.servers {
            for sentinel in 1..3 {
                if which & (1 << (sentinel - 1)) != 0 {
                    service.signal_sentinel(sentinel, signal);
                }
            }
        }
    }

    /// The server that a fault hits, if it answers now.
    fn reachable(&self, what: What, key: &str) -> Option<usize> {
        let number = match (&self.servers, what) {
            (Servers::Sentinel(service), What::FreezeReplica) => {
                let master = service.master_port();
                let mut servers = service.servers().iter().map(Server::port);
                servers.find(|port| *port != master)?.into()
            }
            (Servers::Sentinel(service), _) => {
                Some(service.master_port()).filter(|port| *port != 0)?.into()
            }
            (Servers::Cluster(cluster), _) => {
                let asked = (0..2).find(|node| !self.away.contains(node))?;
                Some(cluster.owner(asked, key)).filter(|node| *node != usize::MAX)?
            }
            (
                _,
                What::FreezeServer(server)
                | What::KillServer(server)
                | What::RefuseServer(server)
                | What::RestartEmpty(server)
                | What::DeleteKeyOf(server),
            ) => server,
            _ => 0,
        };
        // What is away may be frozen, and would not answer.
        let is_away = self.away.contains(&number);
        let is_free = match what {
            What::Flush | What::DeleteKey | What::DeleteKeyOf(_) | What::KillConnections => {
                !is_away
            }
            _ => !is_away && self.away.len() < self.minority,
        };
        is_free.then_some(number)
    }

    /// The server that this fault made unavailable.
    fn back(&mut self, what: What) -> Option<usize> {
        let is_hit = |away: &usize| match what {
            What::FreezeServer(server) | What::KillServer(server) | What::RefuseServer(server) => {
                *away == server
            }
            _ => true,
        };
        let at = self.away.iter().position(is_hit)?;
        Some(self.away.remove(at))
    }

    fn server(&mut self, number: usize) -> &mut Server {
        match &mut self.servers {
            Servers::One(server) => server,
            Servers::Quorum(servers) => &mut servers[number],
            Servers::Cluster(cluster) => cluster.node_mut(number),
            Servers::Sentinel(service) => service.server_mut(u16::try_from(number).unwrap()),
            Servers::Files(_) => unreachable!("local files have no server"),
        }
    }

    fn tell(&mut self, what: What, key: &str, command: &[&str]) -> bool {
        let Some(number) = self.reachable(what, key) else { return false };
        self.server(number).cli(command);
        true
    }

    fn remove_files(&self, what: What, lock: &str) -> bool {
        let Servers::Files(directory) = &self.servers else { return false };
        if what == What::DeleteKey {
            return fs::remove_file(directory.path().join(format!("rlock:{lock}.lock"))).is_ok();
        }
        // A client may create a lock file anew before its state is deleted, so it is deleted again.
        for _ in 0..2 {
            let files = fs::read_dir(directory.path()).unwrap().flatten().map(|file| file.path());
            // A state that is missing beside its lock file is an error, so it comes last.
            let (states, others): (Vec<_>, Vec<_>) =
                files.partition(|file| file.extension().is_some_and(|name| name == "state"));
            for file in others.iter().chain(&states) {
                let _ = fs::remove_file(file);
            }
        }
        true
    }

    fn replace_master(&mut self) {
        let Some(number) = self.away.pop() else { return };
        match &mut self.servers {
            Servers::Sentinel(service) => {
                let port = u16::try_from(number).unwrap();
                service.await_failover(port);
                service.start_as_replica(port);
            }
            Servers::Cluster(cluster) => {
                until("the replica has taken over", || {
                    let asked = usize::from(number == 0);
                    cluster.masters_but(number).len() == 3
                        && cluster
                            .node(asked)
                            .cli(&["CLUSTER", "INFO"])
                            .contains("cluster_state:ok")
                });
                cluster.node_mut(number).start_again();
            }
            _ => {}
        }
    }

    fn request_failover(&mut self, key: &str) -> bool {
        let Some(owner) = self.reachable(What::FailOver, key) else { return false };
        let Servers::Cluster(cluster) = &self.servers else { return false };
        let port = cluster.node(owner).port().to_string();
        let replica = (0..cluster.count()).find(|node| {
            let role = cluster.node(*node).cli(&["ROLE"]);
            role.starts_with("slave") && role.lines().nth(2) == Some(&port)
        });
        let Some(replica) = replica else { return false };
        cluster.node(replica).cli(&["CLUSTER", "FAILOVER"]);
        until("the replica is the master", || {
            cluster.node(replica).cli(&["ROLE"]).starts_with("master")
        });
        true
    }

    fn begin_move(&mut self, key: &str) -> bool {
        let Some(from) = self.reachable(What::MoveSlot, key) else { return false };
        let Servers::Cluster(cluster) = &self.servers else { return false };
        let masters = cluster.masters();
        let Some(to) = masters.iter().copied().find(|master| *master != from) else {
            return false;
        };
        let slot = cluster.slot(key);
        let set = |node: usize, how: &str, other: usize| {
            cluster.node(node).cli(&["CLUSTER", "SETSLOT", &slot, how, &cluster.id(other)]);
        };
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
        self.moving = Some(Move { slot, from, to });
        // Half of the keys.
        self.carry(1);
        true
    }

    /// Moves some keys of the moving slot. Returns how many there were.
    fn carry(&self, part: usize) -> usize {
        let (Servers::Cluster(cluster), Some(Move { slot, from, to })) =
            (&self.servers, &self.moving)
        else {
            return 0;
        };
        let keys = cluster.node(*from).cli(&["CLUSTER", "GETKEYSINSLOT", slot, "99"]);
        let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
        let port = cluster.node(*to).port().to_string();
        for key in &keys[..keys.len() >> part] {
            cluster.node(*from).cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        keys.len()
    }

    fn end_move(&mut self) {
        while self.carry(0) > 0 {}
        let (Servers::Cluster(cluster), Some(Move { slot, from, to })) =
            (&self.servers, self.moving.take())
        else {
            return;
        };
        let id = cluster.id(to);
        let others = cluster.masters().into_iter().filter(|node| ![from, to].contains(node));
        for node in [to, from].into_iter().chain(others) {
            cluster.node(node).cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }
}

/// The same URL with its hosts in another order.
fn rotated(url: &str, by: usize) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut hosts: Vec<&str> = hosts.split(',').collect();
    let by = by % hosts.len();
    hosts.rotate_left(by);
    format!("{scheme}://{}/{path}", hosts.join(",")).trim_end_matches('/').to_owned()
}
