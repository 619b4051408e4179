//! A private server: what a test starts, it stops.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// The server to test against; another version or Valkey by setting this variable.
const SERVER_VARIABLE: &str = "RLOCK_TEST_SERVER";

/// A server of a test's own, on a unix socket and, if asked for, on a free port.
pub struct Server {
    process: Child,
    directory: TempDir,
    port: u16,
    options: Vec<String>,
}

impl Server {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With more options of redis-server's.
    pub fn with(options: &[&str]) -> Self {
        Self::launch(0, options)
    }

    /// Listens on a port of 127.0.0.1 as well.
    pub fn on_tcp(options: &[&str]) -> Self {
        Self::launch(free_port(), options)
    }

    fn launch(port: u16, options: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let process = run_server(directory.path(), port, &options);
        Self { process, directory, port, options }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn port(&self) -> u16 {
        assert_ne!(self.port, 0, "this server has no port");
        self.port
    }

    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub fn tcp_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// What redis-cli prints for a command.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .arg("-s")
            .arg(self.socket())
            .args(arguments)
            .output()
            .expect("redis-cli is installed");
        assert!(output.status.success(), "redis-cli {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub fn cli_number(&self, arguments: &[&str]) -> i64 {
        let printed = self.cli(arguments);
        printed.parse().unwrap_or_else(|_| panic!("{arguments:?}: {printed}"))
    }

    /// How often a command was called since the statistics were last reset.
    pub fn calls_of(&self, command: &str) -> u64 {
        let statistics = self.cli(&["INFO", "commandstats"]);
        let line = statistics.lines().find_map(|line| {
            line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next()?.parse().ok()
        });
        line.unwrap_or(0)
    }

    pub fn signal(&self, signal: &str) {
        send_signal(self.process.id(), signal);
    }

    /// Kills the server; its data are gone.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again, on the same socket and port, with nothing in it.
    pub fn start_again(&mut self) {
        self.process = run_server(self.directory.path(), self.port, &self.options);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run_server(directory: &Path, port: u16, options: &Vec<String>) -> Child {
    let binary = std::env::var(SERVER_VARIABLE).unwrap_or_else(|_| "redis-server".into());
    let mut process = Command::new(&binary)
        .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--unixsocket"])
        .arg(directory.join("socket"))
        .args(["--port", &port.to_string(), "--dir"])
        .arg(directory)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{binary} cannot be started: {error}"));
    let mut log = BufReader::new(process.stdout.take().unwrap());
    let mut told = String::new();
    while !told.contains("eady to accept connections") {
        let read = log.read_line(&mut told).unwrap();
        assert_ne!(read, 0, "{binary} did not start:\n{told}");
    }
    // What it says later must not fill the pipe and stop it.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    process
}

pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

pub fn send_signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -s {signal} {pid}");
}
