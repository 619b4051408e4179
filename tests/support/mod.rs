//! Private servers, and the real binary against them. What a test starts, it stops.

// Each test file uses its own part of this.
#![allow(dead_code, unreachable_pub, missing_docs)]
// A test that cannot have its server or its file has failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod proxy;
pub mod pty;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

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

    /// An rlock that knows this server and nothing else of its surroundings.
    pub fn rlock<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = rlock(arguments);
        command.env("RLOCK_URL", self.url());
        command
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

/// The binary under test, without what the surroundings may have set for it.
pub fn rlock<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rlock"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RLOCK_") {
            command.env_remove(name);
        }
    }
    command
}

/// What tests ask of a finished command.
pub trait Finished {
    fn code(&self) -> i32;
    fn out(&self) -> String;
    fn err(&self) -> String;
}

impl Finished for Output {
    #[track_caller]
    fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("died: {self:?}"))
    }

    fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim_end().to_owned()
    }
}

/// Runs to the end, and checks what holds of every run: no panic, one line an error.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let err = output.err();
    assert!(!err.contains("a bug, please"), "{command:?}: {err}");
    output
}

/// An rlock that runs in the background, with its three streams in the test's hands.
pub struct Running {
    pub process: Child,
    pub stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let stderr = BufReader::new(process.stderr.take().unwrap());
        Self { process, stdin, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next line of stdout, when it comes.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line).unwrap();
        assert_ne!(read, 0, "stdout ended; stderr: {}", self.rest_of_stderr());
        line.trim_end().to_owned()
    }

    /// The next line of stderr that has `part` in it, when it comes.
    #[track_caller]
    pub fn told(&mut self, part: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "stderr ended without {part:?}: {all}");
            if line.contains(part) {
                return line.trim_end().to_owned();
            }
            all.push_str(&line);
        }
    }

    fn rest_of_stderr(&mut self) -> String {
        let mut rest = String::new();
        let _ = self.stderr.read_to_string(&mut rest);
        rest
    }

    /// Lets a `read` in the command return.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is still open");
        writeln!(stdin, "{line}").unwrap();
    }

    pub fn signal(&self, signal: &str) {
        send_signal(self.pid(), signal);
    }

    /// Closes stdin and waits for the end.
    pub fn finish(mut self) -> Output {
        drop(self.stdin.take());
        self.end()
    }

    /// Waits for the end.
    pub fn end(mut self) -> Output {
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        self.stdout.read_to_end(&mut stdout).unwrap();
        self.stderr.read_to_end(&mut stderr).unwrap();
        Output { status: self.process.wait().unwrap(), stdout, stderr }
    }
}

/// A shell command that says READY and then waits until its stdin ends or it is told to go on.
pub const READY: &str = "echo READY; read _ || :";

/// An exec that has the lock, until `finish`.
#[track_caller]
pub fn holder(server: &Server, options: &[&str], name: &str) -> Running {
    let arguments = ["exec"].iter().chain(options).copied();
    let mut holder =
        Running::start(&mut server.rlock(arguments.chain([name, "--", "sh", "-c", READY])));
    assert_eq!(holder.line(), "READY");
    holder
}

/// An exec that waits in line and says ENTERED and `word` once it has the lock.
#[track_caller]
pub fn waiter(server: &Server, options: &[&str], name: &str, word: &str) -> Running {
    let arguments = ["exec"].iter().chain(options).copied();
    let enter = format!("echo ENTERED {word}");
    let mut waiter =
        Running::start(&mut server.rlock(arguments.chain([name, "--", "sh", "-c", &enter])));
    waiter.told("waiting in place");
    waiter
}

/// Acquires a lock and returns its token.
#[track_caller]
pub fn acquire(server: &Server, options: &[&str], name: &str) -> String {
    let arguments = ["acquire"].iter().chain(options).copied().chain([name]);
    let output = run(&mut server.rlock(arguments));
    assert_eq!(output.code(), 0, "{output:?}");
    output.out()
}

/// Waits for something that has no way to announce itself, such as another process' end. Fails
/// after a time that is long beyond any doubt.
#[track_caller]
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < give_up, "did not happen: {what}");
        std::thread::yield_now();
    }
}
