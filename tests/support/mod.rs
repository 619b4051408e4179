//! Private servers, and the real binary against them. What a test starts, it stops.

// Each test file uses its own part of this.
#![allow(dead_code, unreachable_pub, missing_docs)]
// A test that cannot have its server or its file has failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod proxy;
pub mod pty;
pub mod server;

pub use server::{Server, send_signal};

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

impl Server {
    /// An rlock that knows this server and nothing else of its surroundings.
    pub fn rlock<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = rlock(arguments);
        command.env("RLOCK_URL", self.url());
        command
    }
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
