//! The servers, which live for a whole campaign, and how each fault hits them.

use std::fs;
use std::time::Duration;

use super::faults::{Hit, Move, WORKERS, What, Wires};
use super::kind::Kind;
use super::plan::Plan;
use super::time::now;
use crate::support::cluster::Cluster;
use crate::support::endpoint::{Endpoint, Old};
use crate::support::proxy::Proxy;
use crate::support::sentinels::Service;
use crate::support::{Finished, Server, rlock, run, until};

enum Servers {
    /// One server, a directory of `local:`, or the servers of a quorum.
    Alone(Vec<Server>),
    Sentinel(Service),
    Cluster(Cluster),
    /// One name, or those of a quorum.
    Endpoints(Vec<Endpoint>),
}

pub struct Deployment {
    kind: Kind,
    servers: Servers,
    /// A separate proxy for each worker and server, unless clients find the servers by themselves.
    wires: Vec<Vec<Proxy>>,
    /// Why some servers do not answer now, and their numbers; for Sentinel their ports.
    away: Vec<(Hit, usize)>,
    /// The servers whose clocks were stepped in this round, and by how many milliseconds.
    stepped: Vec<(usize, i64)>,
    /// When an endpoint last began to lead to another server.
    pub moved: f64,
}

fn joined(urls: impl Iterator<Item = String>) -> String {
    urls.collect::<Vec<_>>().join(" ")
}

/// The options of a server that keeps its data.
const LASTING: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "no"];

impl Deployment {
    pub fn start(kind: Kind) -> Self {
        let servers = match kind {
            Kind::Server => Servers::Alone(vec![Server::with_clock(Duration::ZERO, &LASTING)]),
            Kind::Files => Servers::Alone(vec![Server::local()]),
            Kind::Quorum(count) => {
                let start = |_| Server::with_clock(Duration::ZERO, &[]);
                Servers::Alone((0..count).map(start).collect())
            }
            Kind::Sentinel => Servers::Sentinel(Service::start(2, &[], &[])),
            Kind::Cluster => Servers::Cluster(Cluster::start(3, 1)),
            Kind::Endpoint | Kind::QuorumOfEndpoints(_) => {
                Servers::Endpoints((0..kind.servers()).map(|_| Endpoint::start()).collect())
            }
        };
        let (wires, away, stepped) = Default::default();
        let mut deployment = Self { kind, servers, wires, away, stepped, moved: 0.0 };
        let wired = deployment.all().into_iter().take(kind.servers()).filter(|_| kind.has_wires());
        let to = |server: &Server| Proxy::to(server.port(), Duration::ZERO);
        deployment.wires = (0..WORKERS).map(|_| wired.clone().map(to).collect()).collect();
        deployment
    }

    fn all(&self) -> Vec<&Server> {
        match &self.servers {
            Servers::Alone(servers) => servers.iter().collect(),
            Servers::Sentinel(service) => service.servers().iter().collect(),
            Servers::Cluster(cluster) => cluster.nodes().iter().collect(),
            Servers::Endpoints(endpoints) => {
                let masters = endpoints.iter().map(|endpoint| &endpoint.master);
                masters.chain(endpoints.iter().map(|endpoint| &endpoint.replica)).collect()
            }
        }
    }

    /// The URL for a worker in a round with this seed.
    pub fn url(&self, seed: u64, worker: usize) -> String {
        match &self.wires[worker][..] {
            _ if !Plan::has_wires(self.kind, seed, worker) => self.direct_url(),
            wires => joined(wires.iter().map(Proxy::url)),
        }
    }

    /// The URL for an operator, whose network is never cut.
    pub fn direct_url(&self) -> String {
        match &self.servers {
            Servers::Alone(servers) => joined(servers.iter().map(Server::url)),
            Servers::Sentinel(service) => service.url(),
            Servers::Cluster(cluster) => cluster.url(),
            Servers::Endpoints(endpoints) => joined(endpoints.iter().map(Endpoint::url)),
        }
    }

    pub fn processes(&self) -> Vec<u32> {
        self.all().into_iter().filter(|it| !it.is_local()).map(Server::process).collect()
    }

    /// The sum of all steps of clocks forward in this round, in milliseconds. No clock is further
    /// ahead.
    pub fn hurried(&self) -> u64 {
        self.stepped.iter().map(|(_, millis)| u64::try_from(*millis).unwrap_or(0)).sum()
    }

    /// How much later leases may end because clocks were set back in this round, in milliseconds.
    pub fn prolonged(&self) -> u64 {
        self.stepped.iter().map(|(_, millis)| u64::try_from(-millis).unwrap_or(0)).sum()
    }

    /// Grows with every failover.
    pub fn epoch(&self) -> u64 {
        match &self.servers {
            Servers::Sentinel(service) => service.epoch(),
            Servers::Cluster(cluster) => cluster.epoch(),
            Servers::Alone(_) | Servers::Endpoints(_) => 0,
        }
    }

    /// Begins a fault. Returns false if it cannot happen now, because another one lasts.
    pub fn begin(&mut self, what: What, lock: &str) -> bool {
        match what {
            What::OnServer(server, hit) => return self.hit(server, hit, &format!("rlock:{lock}")),
            What::Part(wires) => self.each_wire(wires, |wire| wire.part(true)),
            What::Delay(wires, delay) => self.each_wire(wires, |wire| wire.delay(delay)),
            What::BreakReply(wires, bytes) => {
                self.each_wire(wires, |wire| wire.break_reply_after(bytes));
            }
            _ => {}
        }
        true
    }

    /// The server that a fault hits, if it answers now and may fail beside those that do not.
    fn target(&self, server: usize, key: &str) -> Option<usize> {
        let is_away = |number: usize| self.away.iter().any(|(_, away)| *away == number);
        let number = match &self.servers {
            Servers::Sentinel(service) => {
                Some(service.master_port()).filter(|port| *port != 0)?.into()
            }
            Servers::Cluster(cluster) => {
                let asked = (0..2).find(|node| !is_away(*node))?;
                cluster.owner(asked, key)?
            }
            Servers::Alone(_) | Servers::Endpoints(_) => server,
        };
        // What is away may be frozen, and would not answer.
        (!is_away(number) && self.away.len() < self.kind.minority()).then_some(number)
    }

    fn hit(&mut self, server: usize, hit: Hit, key: &str) -> bool {
        if self.kind == Kind::Files {
            return fs::remove_file(self.all()[0].locks().join(format!("{key}.lock"))).is_ok();
        }
        let Some(number) = self.target(server, key) else { return false };
        let server = self.server(number);
        let tell = |command: &[&str]| drop(server.cli(command));
        match hit {
            Hit::Freeze => server.signal("STOP"),
            Hit::Down => server.kill(),
            Hit::RestartEmpty => {
                server.kill();
                let _ = fs::remove_dir_all(server.directory().join("appendonlydir"));
                let _ = fs::remove_file(server.directory().join("appendonly.aof"));
                server.start_again();
            }
            Hit::Flush => tell(&["FLUSHALL"]),
            Hit::DeleteKey => tell(&["DEL", key]),
            Hit::KillConnections => tell(&["CLIENT", "KILL", "TYPE", "normal"]),
            Hit::FailOver => {
                let Servers::Cluster(cluster) = &self.servers else { return false };
                cluster.fail_over(number);
            }
            Hit::Move(how) => self.begin_move(number, how),
            Hit::StepClock(millis) => {
                server.step_clock(millis);
                self.stepped.push((number, millis));
            }
        }
        if hit.lasts() {
            self.away.push((hit, number));
        }
        true
    }

    /// Ends a fault that `begin` began. Returns once the servers have recovered.
    pub fn end(&mut self, what: What) {
        match what {
            What::Part(wires) => self.each_wire(wires, |wire| wire.part(false)),
            What::Delay(wires, _) => self.each_wire(wires, |wire| wire.delay(Duration::ZERO)),
            What::OnServer(server, hit) => self.recover(server, hit),
            _ => {}
        }
    }

    fn recover(&mut self, server: usize, hit: Hit) {
        let is_own = |(why, number): &(Hit, usize)| {
            *why == hit && (self.kind.replicas() > 0 || *number == server)
        };
        let Some(at) = self.away.iter().position(is_own) else { return };
        let (_, number) = self.away.remove(at);
        match hit {
            Hit::Move(how) => self.end_move(number, how),
            Hit::Freeze => self.server(number).signal("CONT"),
            _ if self.kind.replicas() > 0 => self.replace_master(number),
            _ => self.server(number).start_again(),
        }
    }

    fn begin_move(&mut self, number: usize, how: Move) {
        let old = match how {
            Move::Kept => Old::Demoted,
            Move::Cut => Old::Cut,
            Move::NoReplicas => Old::WithoutReplicas,
            Move::TwoMasters => Old::Master,
            Move::Lag => {
                self.endpoint(number).replica.promote();
                return;
            }
        };
        self.fail_over(number, old);
        if !Hit::Move(how).lasts() {
            self.endpoint(number).settle();
        }
    }

    fn end_move(&mut self, number: usize, how: Move) {
        if how == Move::Lag {
            self.fail_over(number, Old::Demoted);
        }
        self.endpoint(number).settle();
    }

    fn fail_over(&mut self, number: usize, old: Old) {
        let endpoint = self.endpoint(number);
        endpoint.fails_over(old);
        let port = endpoint.replica.port();
        for wire in self.wires.iter().filter_map(|wires| wires.get(number)) {
            wire.leads_to(port);
            if matches!(old, Old::Cut) {
                wire.cut();
            }
        }
        self.moved = now();
    }

    fn endpoint(&mut self, number: usize) -> &mut Endpoint {
        match &mut self.servers {
            Servers::Endpoints(endpoints) => &mut endpoints[number],
            _ => unreachable!("only endpoints move"),
        }
    }

    /// Sets all clocks to the time of day.
    pub fn reset_clocks(&mut self) {
        for (server, millis) in std::mem::take(&mut self.stepped) {
            self.server(server).step_clock(-millis);
        }
    }

    /// Waits until all servers work again and can grant leases of any length in the plans.
    pub fn heal(&self) {
        for wire in self.wires.iter().flatten() {
            wire.break_reply_after(usize::MAX);
            wire.cut();
        }
        match &self.servers {
            Servers::Sentinel(service) => service.await_replicas(),
            Servers::Cluster(cluster) => cluster.await_agreement(),
            Servers::Endpoints(endpoints) => {
                endpoints.iter().for_each(Endpoint::replicates);
                // Each other one must vote for the pair.
                for other in endpoints.iter().skip(1) {
                    let pair = joined([&endpoints[0], other].map(Endpoint::url).into_iter());
                    let sure = ["exec", "--ttl=3s", "sure", "true"];
                    until("both vote", || run(rlock(sure).env("RLOCK_URL", &pair)).code() == 0);
                }
            }
            Servers::Alone(servers) if self.kind.is_quorum() => {
                servers.iter().for_each(|server| server.await_uptime(3));
            }
            Servers::Alone(_) => {}
        }
    }

    fn each_wire(&self, hit: Wires, act: impl Fn(&Proxy)) {
        for (hit, wires) in hit.iter().zip(&self.wires) {
            let is_hit = |(number, _): &(usize, &Proxy)| hit & (1 << number) != 0;
            wires.iter().enumerate().filter(is_hit).for_each(|(_, wire)| act(wire));
        }
    }

    fn server(&mut self, number: usize) -> &mut Server {
        match &mut self.servers {
            Servers::Alone(servers) => &mut servers[number],
            Servers::Cluster(cluster) => cluster.node_mut(number),
            Servers::Sentinel(service) => service.server_mut(u16::try_from(number).unwrap()),
            Servers::Endpoints(endpoints) => &mut endpoints[number].master,
        }
    }

    /// Restarts a killed master once a replica has taken over.
    fn replace_master(&mut self, number: usize) {
        match &mut self.servers {
            Servers::Sentinel(service) => {
                let port = u16::try_from(number).unwrap();
                service.await_failover(port);
                service.start_as_replica(port);
            }
            Servers::Cluster(cluster) => {
                cluster.await_failover(number);
                cluster.node_mut(number).start_again();
            }
            Servers::Alone(_) | Servers::Endpoints(_) => unreachable!("these have no replicas"),
        }
    }
}
