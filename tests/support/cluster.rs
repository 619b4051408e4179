//! A private Redis Cluster for one test.

use std::net::TcpListener;
use std::process::{Command, Output};

use super::limit::output_of;
use super::{Server, until};

const OPTIONS: &str = "--cluster-enabled yes --cluster-node-timeout 1000
    --cluster-require-full-coverage no --cluster-replica-validity-factor 0";

pub struct Cluster {
    nodes: Vec<Server>,
    /// Of each master.
    replicas: usize,
}

impl Cluster {
    pub fn start(masters: usize, replicas: usize) -> Self {
        let nodes: Vec<Server> = (0..masters * (1 + replicas))
            .map(|_| {
                let port = port_with_a_bus();
                Server::on_port(port, &OPTIONS.split_whitespace().collect::<Vec<_>>())
            })
            .collect();
        let cluster = Self { nodes, replicas };
        let addresses: Vec<String> = cluster.nodes.iter().map(address).collect();
        let create = ["create"].into_iter().chain(addresses.iter().map(String::as_str));
        let count = replicas.to_string();
        cluster.manage(create.chain(["--cluster-replicas", &count, "--cluster-yes"]));
        cluster.await_agreement();
        cluster
    }

    /// Waits until all nodes agree on who has which slot, and since which epoch, and all replicas are
    /// connected.
    ///
    /// If a slot moves again before a node knows the epoch of the last move, the nodes may later give
    /// it back to the node that had it, and the other one then deletes its keys.
    pub fn await_agreement(&self) {
        until("all nodes agree", || {
            self.nodes.iter().all(|node| {
                node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                    && view(node) == view(&self.nodes[0])
            })
        });
        until("all replicas are connected", || {
            self.masters().iter().all(|&master| {
                let told = self.nodes[master].cli(&["INFO", "replication"]);
                told.matches("state=online").count() == self.replicas
            })
        });
    }

    /// `redis-cli --cluster …`
    #[track_caller]
    pub fn manage<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Output {
        let output = output_of(Command::new("redis-cli").arg("--cluster").args(arguments));
        assert!(output.status.success(), "{output:?}");
        output
    }

    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(address).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// A URL with only one seed.
    pub fn url_of(&self, node: usize) -> String {
        format!("redis+cluster://{}", self.address(node))
    }

    pub fn address(&self, node: usize) -> String {
        address(&self.nodes[node])
    }

    pub fn node(&self, node: usize) -> &Server {
        &self.nodes[node]
    }

    pub fn node_mut(&mut self, node: usize) -> &mut Server {
        &mut self.nodes[node]
    }

    pub fn id(&self, node: usize) -> String {
        self.nodes[node].cli(&["CLUSTER", "MYID"])
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Grows with every failover.
    pub fn epoch(&self) -> u64 {
        let told = self.nodes[0].cli(&["CLUSTER", "INFO"]);
        let epoch = told.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
        epoch.unwrap().trim().parse().unwrap()
    }

    /// Lets the replica of this living master take over.
    pub fn fail_over(&self, master: usize) {
        let port = self.nodes[master].port().to_string();
        let is_its = |node: &&Server| {
            let role = node.cli(&["ROLE"]);
            role.starts_with("slave") && role.lines().nth(2) == Some(&port)
        };
        let replica = self.nodes.iter().find(is_its).expect("a replica");
        replica.cli(&["CLUSTER", "FAILOVER"]);
        until("the replica is the master", || replica.cli(&["ROLE"]).starts_with("master"));
    }

    /// Waits until a replica has taken over from this master, which does not answer.
    pub fn await_failover(&self, from: usize) {
        let asked = &self.nodes[usize::from(from == 0)];
        until("the replica has taken over", || {
            self.masters_but(from).len() == 3
                && asked.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        });
    }

    pub fn masters(&self) -> Vec<usize> {
        self.masters_but(usize::MAX)
    }

    /// The masters without this node, which does not answer.
    pub fn masters_but(&self, away: usize) -> Vec<usize> {
        let is_master = |node: &usize| self.nodes[*node].cli(&["ROLE"]).starts_with("master");
        (0..self.nodes.len()).filter(|node| *node != away).filter(is_master).collect()
    }

    pub fn slot(&self, key: &str) -> String {
        self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key])
    }

    /// The master that has this key, according to the node `asked`; `None` if it knows of none.
    pub fn owner(&self, asked: usize, key: &str) -> Option<usize> {
        let told = self.nodes[asked].cli(&["EXISTS", key]);
        match told.strip_prefix("MOVED ") {
            Some(moved) => self.nodes.iter().position(|node| moved.ends_with(&address(node))),
            None => told.parse::<u8>().is_ok().then_some(asked),
        }
    }
}

/// The ID, the epoch and the slots of each node, as this node knows them.
fn view(node: &Server) -> Vec<String> {
    let nodes = node.cli(&["CLUSTER", "NODES"]);
    let known = nodes.lines().map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        format!("{} {} {}", fields[0], fields[6], fields[8..].join(" "))
    });
    let mut known: Vec<String> = known.collect();
    known.sort();
    known
}

fn address(node: &Server) -> String {
    format!("127.0.0.1:{}", node.port())
}

/// The nodes of a cluster communicate on the port 10,000 above their own.
fn port_with_a_bus() -> u16 {
    loop {
        let port = super::server::free_port();
        let bus = port.checked_add(10_000);
        if bus.is_some_and(|bus| TcpListener::bind(("127.0.0.1", bus)).is_ok()) {
            return port;
        }
    }
}
