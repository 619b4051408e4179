//! A private server, or a directory of locks without one. It ends with the test that starts it.

use std::cell::Cell;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::clock::Clock;
use super::limit::{Process, output_of, until};
use super::side_key;
use tempfile::TempDir;

const NEEDS_REDIS: &str = "this needs a Redis server, so the test is nothing for also_on_local!";

/// Names another server to test against, such as Valkey or another version of Redis.
const SERVER_VARIABLE: &str = "RLOCK_TEST_SERVER";

thread_local! {
    /// Each test has its own thread.
    static IS_LOCAL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test in which `Server::start` uses `local:`.
pub fn on_local<T>(test: impl FnOnce() -> T) -> T {
    let before = IS_LOCAL.replace(true);
    let result = test();
    IS_LOCAL.set(before);
    result
}

/// A private server on a Unix socket and optionally on a free port. On `local:` it is a directory,
/// and operations that need Redis panic.
pub struct Server {
    redis: Option<Redis>,
    directory: TempDir,
}

struct Redis {
    process: Process,
    port: u16,
    options: Vec<String>,
    clock: Option<Clock>,
}

impl Server {
    /// Starts Redis, or uses `local:` if the test runs on that.
    pub fn start() -> Self {
        if !IS_LOCAL.get() {
            return Self::with(&[]);
        }
        let server = Self { redis: None, directory: directory() };
        std::fs::create_dir(server.locks()).expect("a new directory");
        server
    }

    /// Starts a Redis with additional options of redis-server.
    pub fn with(options: &[&str]) -> Self {
        Self::launch(directory(), 0, options, None)
    }

    /// Starts a Redis on a free port of 127.0.0.1, whose clock is so far ahead and can be set.
    pub fn with_clock(ahead: Duration, options: &[&str]) -> Self {
        let directory = directory();
        let clock = Clock::ahead(ahead, directory.path().join("clock"));
        Self::launch(directory, free_port(), options, Some(clock))
    }

    /// Starts a Redis whose clock shows what this file says, in microseconds.
    pub fn on_clock(file: &Path) -> Self {
        Self::launch(directory(), 0, &[], Some(Clock::of(file)))
    }

    /// Starts a Redis that also listens on a free port of 127.0.0.1.
    pub fn on_tcp(options: &[&str]) -> Self {
        Self::launch(directory(), free_port(), options, None)
    }

    /// Starts a Redis that also listens on this port of 127.0.0.1.
    pub fn on_port(port: u16, options: &[&str]) -> Self {
        Self::launch(directory(), port, options, None)
    }

    fn launch(directory: TempDir, port: u16, options: &[&str], clock: Option<Clock>) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let process = run_server(directory.path(), port, &options, clock.as_ref());
        Self { redis: Some(Redis { process, port, options, clock }), directory }
    }

    pub fn is_local(&self) -> bool {
        self.redis.is_none()
    }

    fn redis(&self) -> &Redis {
        self.redis.as_ref().expect(NEEDS_REDIS)
    }

    pub fn socket(&self) -> PathBuf {
        assert!(!self.is_local(), "{NEEDS_REDIS}");
        socket(self.directory())
    }

    /// Where `local:` keeps its locks.
    pub fn locks(&self) -> PathBuf {
        assert!(self.is_local(), "on Redis, locks are no files");
        self.directory().join("locks")
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn port(&self) -> u16 {
        let port = self.redis().port;
        assert_ne!(port, 0, "this server has no port");
        port
    }

    pub fn url(&self) -> String {
        match self.redis {
            Some(_) => format!("unix://{}", self.socket().display()),
            None => format!("local:{}", self.locks().display()),
        }
    }

    pub fn tcp_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// What redis-cli prints for a command.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let output = output_of(&mut self.cli_command(arguments));
        assert!(output.status.success(), "redis-cli {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub fn cli_command(&self, arguments: &[&str]) -> Command {
        let mut redis_cli = Command::new("redis-cli");
        redis_cli.arg("-s").arg(self.socket()).args(arguments);
        redis_cli
    }

    pub fn cli_number(&self, arguments: &[&str]) -> i64 {
        let printed = self.cli(arguments);
        printed.parse().unwrap_or_else(|_| panic!("{arguments:?}: {printed}"))
    }

    /// Whether it has a hold that blocks other clients.
    pub fn has(&self, name: &str) -> bool {
        self.cli(&["EXISTS", &format!("rlock:{name}")]) == "1"
    }

    /// Makes it a replica of the server on this port.
    pub fn follows(&self, master: u16) {
        self.cli(&["REPLICAOF", "127.0.0.1", &master.to_string()]);
    }

    /// Makes it a master.
    pub fn promote(&self) {
        self.cli(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Whether its INFO contains this.
    pub fn reports(&self, text: &str) -> bool {
        self.cli(&["INFO"]).contains(text)
    }

    /// Waits until the server has been up for more than `seconds`, because it rounds its uptime.
    pub fn await_uptime(&self, seconds: u64) {
        until("the server has been up for long enough", || {
            let told = self.cli(&["INFO", "server"]);
            let uptime = told.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
            // A server that is under a fault may not answer.
            uptime.and_then(|it| it.trim().parse::<u64>().ok()).is_some_and(|it| it > seconds)
        });
    }

    /// How many times a command was called since the last reset of the statistics.
    pub fn calls_of(&self, command: &str) -> u64 {
        let statistics = self.cli(&["INFO", "commandstats"]);
        let line = statistics.lines().find_map(|line| {
            line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next()?.parse().ok()
        });
        line.unwrap_or(0)
    }

    /// How many waiters of a lock were woken since the last reset of the statistics, before which the
    /// lock was never used. Records in the history use the same command, so they are subtracted.
    pub fn messages_about(&self, name: &str) -> u64 {
        let records = self.cli_number(&["LLEN", &side_key(name, "history")]);
        assert!(records < 16, "older ones are dropped");
        self.calls_of("rpush") - u64::try_from(records).unwrap()
    }

    pub fn process(&self) -> u32 {
        self.redis().process.id()
    }

    pub fn signal(&self, signal: &str) {
        send_signal(self.process(), signal);
    }

    /// Sets its clock forward by so many milliseconds, or back, if it was started with one.
    pub fn step_clock(&self, millis: i64) {
        self.redis().clock.as_ref().expect("a server with its own clock").step(millis);
    }

    /// Kills the server, which loses its data.
    pub fn kill(&mut self) {
        self.redis.as_mut().expect(NEEDS_REDIS).process.kill();
    }

    /// Restarts the server on the same socket and port, without data.
    pub fn start_again(&mut self) {
        self.start_again_with(&[]);
    }

    /// Restarts the server with additional options.
    pub fn start_again_with(&mut self, options: &[String]) {
        let redis = self.redis.as_mut().expect(NEEDS_REDIS);
        let options = [&redis.options[..], options].concat();
        let clock = redis.clock.as_ref();
        redis.process = run_server(self.directory.path(), redis.port, &options, clock);
    }
}

fn directory() -> TempDir {
    tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap()
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

pub fn binary() -> String {
    std::env::var(SERVER_VARIABLE).unwrap_or_else(|_| "redis-server".into())
}

fn run_server(
    directory: &Path,
    port: u16,
    options: &Vec<String>,
    clock: Option<&Clock>,
) -> Process {
    let binary = binary();
    let mut command = Command::new(&binary);
    command
        .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--unixsocket"])
        .arg(socket(directory))
        .args(["--port", &port.to_string(), "--dir"])
        .arg(directory)
        // Replicas catch up at once.
        .args(["--repl-diskless-sync-delay", "0"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(clock) = clock {
        clock.give_to(&mut command);
    }
    let mut process = Process::start(&mut command);
    let mut log = process.stdout();
    let mut told = String::new();
    while !told.contains("eady to accept connections") {
        match log.line("the start of a server") {
            Some(line) => told += &(line + "\n"),
            None => panic!("{binary} did not start:\n{told}"),
        }
    }
    process
}

/// A free port of 127.0.0.1. It is below those that the kernel gives to clients, so that no client
/// takes it while its server is down.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = OWN_PORTS.local_addr().unwrap().port();
    loop {
        let port = first + 1 + TAKEN.fetch_add(1, Ordering::SeqCst) % (PORTS - 1);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// How many ports each process has for its servers.
const PORTS: u16 = 500;

/// The first of these ports. While this process listens on it, no other one uses those after it.
/// Those 10,000 above are for the nodes of its clusters.
static OWN_PORTS: LazyLock<TcpListener> = LazyLock::new(|| {
    let free = |port| TcpListener::bind(("127.0.0.1", port)).ok();
    (10_000..20_000).step_by(PORTS.into()).find_map(free).expect("twenty test runs are in progress")
});

#[track_caller]
pub fn send_signal(pid: u32, signal: &str) {
    let output = output_of(Command::new("kill").args(["-s", signal, &pid.to_string()]));
    assert!(output.status.success(), "kill -s {signal} {pid}: {output:?}");
}
