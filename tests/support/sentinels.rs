//! A private master with its replicas and three sentinels, for one test.

use std::fs;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::limit::{Process, output_of};
use super::server::{binary, free_port, options_of_a_replica};
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
        let master = Server::on_tcp(options);
        let mut servers = vec![master];
        for _ in 0..replicas {
            let of_a_replica = options_of_a_replica(servers[0].port());
            let of_a_replica = of_a_replica.iter().map(String::as_str);
            servers.push(Server::on_tcp(
                &options.iter().copied().chain(of_a_replica).collect::<Vec<_>>(),
            ));
        }
        let directory = tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap();
        let master = servers[0].port();
        let sentinels = (0..3).map(|number| {
            let port = free_port();
            let file = directory.path().join(format!("sentinel-{number}.conf"));
            let mut lines = vec![
                format!("port {port}"),
                "bind 127.0.0.1".to_owned(),
                format!("sentinel monitor svc 127.0.0.1 {master} 2"),
                "sentinel down-after-milliseconds svc 500".to_owned(),
                "sentinel failover-timeout svc 1000".to_owned(),
                "sentinel parallel-syncs svc 5".to_owned(),
            ];
            lines.extend(of_sentinels.iter().map(|line| (*line).to_owned()));
            fs::write(&file, lines.join("\n") + "\n").unwrap();
            let mut command = Command::new(binary());
            command.arg(file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
            Sentinel { process: Process::start(&mut command), port }
        });
        let sentinels = sentinels.collect();
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
                    let field = |name: &str| {
                        let mut lines = told.lines().skip_while(|line| *line != name);
                        lines.nth(1).map(str::to_owned)
                    };
                    field("num-slaves") == Some(replicas.to_string())
                        && field("num-other-sentinels").as_deref() == Some("2")
                        && field("flags").as_deref() == Some("master")
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
        format!("127.0.0.1:{}", self.sentinels[sentinel].port)
    }

    /// The port of the master, according to the first sentinel.
    pub fn master_port(&self) -> u16 {
        let told = self.ask(0, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "svc"]);
        told.lines().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0)
    }

    pub fn master(&mut self) -> &mut Server {
        let port = self.master_port();
        self.servers.iter_mut().find(|server| server.port() == port).unwrap()
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
            let named = (0..self.sentinels.len()).map(|sentinel| {
                self.ask(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "svc"])
            });
            let named: Vec<String> = named.collect();
            let port = self.master_port();
            port != 0
                && port != from
                && named.iter().all(|address| *address == named[0])
                && self.server(port).cli(&["ROLE"]).starts_with("master")
        });
    }

    /// Restarts a killed server as a replica of the master.
    pub fn start_as_replica(&mut self, port: u16) {
        let master = self.master_port();
        let server = self.servers.iter_mut().find(|server| server.port() == port).unwrap();
        server.start_again_with(&options_of_a_replica(master));
    }
}
