//! A private master with its replicas and three sentinels, for one test.

use std::fs;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::limit::{Process, output_of};
use super::server::{binary, free_port};
use super::{Server, until};

pub struct Service {
    servers: Vec<Server>,
    sentinels: Vec<Sentinel>,
    password: Option<String>,
    _directory: TempDir,
}

struct Sentinel {
    process: Process,
    port: u16,
}

impl Service {
    /// Starts the service with this many replicas. `options` are those of redis-server, `of_sentinels`
    /// lines for the configuration of the sentinels.
    pub fn start(replicas: usize, options: &[&str], of_sentinels: &[&str]) -> Self {
        let mut servers = vec![Server::on_tcp(options)];
        let master = servers[0].port();
        servers.extend((0..replicas).map(|_| Server::on_tcp(options)));
        servers[1..].iter().for_each(|replica| replica.follows(master));
        let directory = tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap();
        let ports = [(); 3].map(|()| free_port());
        let start = |port: u16| {
            let file = directory.path().join(format!("{port}.conf"));
            let mut lines = format!(
                "port {port}
                bind 127.0.0.1
                sentinel myid {port:040}
                sentinel monitor svc 127.0.0.1 {master} 2
                sentinel down-after-milliseconds svc 500
                sentinel failover-timeout svc 1000
                sentinel parallel-syncs svc 5\n"
            );
            // They would find each other too, but only after seconds.
            for other in ports.iter().filter(|other| **other != port) {
                lines += &format!("sentinel known-sentinel svc 127.0.0.1 {other} {other:040}\n");
            }
            for replica in &servers[1..] {
                lines += &format!("sentinel known-replica svc 127.0.0.1 {}\n", replica.port());
            }
            fs::write(&file, lines + &of_sentinels.join("\n") + "\n").unwrap();
            let mut command = Command::new(binary());
            command.arg(file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
            Sentinel { process: Process::start(&mut command), port }
        };
        let sentinels = ports.map(start).into();
        let password = of_sentinels.iter().find_map(|line| line.strip_prefix("requirepass "));
        let password = password.map(str::to_owned);
        let service = Self { sentinels, servers, password, _directory: directory };
        service.await_replicas();
        service
    }

    /// Waits until the sentinels know each other and all replicas, and the replicas are connected.
    pub fn await_replicas(&self) {
        let replicas = self.servers.len() - 1;
        until("all replicas are connected and known", || {
            let master = self.servers.iter().find(|server| server.port() == self.master_port());
            let connected = master.is_some_and(|master| {
                let told = master.cli(&["INFO", "replication"]);
                told.matches("state=online").count() == replicas
            });
            connected
                && (0..self.sentinels.len()).all(|sentinel| {
                    let told = self.ask(sentinel, &["SENTINEL", "MASTER", "svc"]);
                    let told = told.replace('\n', " ");
                    let known = format!(" num-slaves {replicas} num-other-sentinels 2 ");
                    told.contains(&known) && told.contains(" flags master ")
                })
        });
    }

    pub fn ask(&self, sentinel: usize, arguments: &[&str]) -> String {
        let port = self.sentinels[sentinel].port.to_string();
        let mut command = Command::new("redis-cli");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        if let Some(password) = &self.password {
            command.env("REDISCLI_AUTH", password);
        }
        let output = output_of(command.args(["-p", &port]).args(arguments));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Grows with every failover.
    pub fn epoch(&self) -> u64 {
        let told = self.ask(0, &["SENTINEL", "MASTER", "svc"]);
        let mut lines = told.lines().skip_while(|line| *line != "config-epoch");
        lines.nth(1).and_then(|epoch| epoch.parse().ok()).unwrap()
    }

    pub fn url(&self) -> String {
        let sentinels: Vec<String> =
            (0..self.sentinels.len()).map(|sentinel| self.address_of_sentinel(sentinel)).collect();
        format!("redis+sentinel://{}/svc", sentinels.join(","))
    }

    pub fn address_of_sentinel(&self, sentinel: usize) -> String {
        format!("127.0.0.1:{}", self.port_of_sentinel(sentinel))
    }

    pub fn port_of_sentinel(&self, sentinel: usize) -> u16 {
        self.sentinels[sentinel].port
    }

    /// The port of the master, according to the first sentinel; 0 if it does not answer.
    pub fn master_port(&self) -> u16 {
        self.port_according_to(0)
    }

    fn port_according_to(&self, sentinel: usize) -> u16 {
        let told = self.ask(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "svc"]);
        told.lines().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0)
    }

    pub fn master(&mut self) -> &mut Server {
        let port = self.master_port();
        self.server_mut(port)
    }

    pub fn server(&self, port: u16) -> &Server {
        self.servers.iter().find(|server| server.port() == port).unwrap()
    }

    pub fn server_mut(&mut self, port: u16) -> &mut Server {
        self.servers.iter_mut().find(|server| server.port() == port).unwrap()
    }

    /// All of them, the master included.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub fn signal_sentinel(&self, sentinel: usize, signal: &str) {
        super::send_signal(self.sentinels[sentinel].process.id(), signal);
    }

    /// Waits until all sentinels name another master, which acts as the master.
    pub fn await_failover(&self, from: u16) {
        until("a replica is the master", || {
            let port = self.master_port();
            port != 0
                && port != from
                && (1..self.sentinels.len()).all(|other| self.port_according_to(other) == port)
                && self.server(port).cli(&["ROLE"]).starts_with("master")
        });
    }

    /// Restarts a killed server as a replica of the master.
    pub fn start_as_replica(&mut self, port: u16) {
        let master = self.master_port();
        let options = ["--replicaof".to_owned(), "127.0.0.1".to_owned(), master.to_string()];
        self.server_mut(port).start_again_with(&options);
    }
}
