//! Private servers, and the real binary against them. Everything that a test starts ends with it.
//!
//! `Server::start` starts a Redis, or creates a directory for `local:` in tests that a file lists in
//! `also_on_local!`. Such a test uses only what works on both. The tests that a file lists in
//! `also_without_vfork!` run once more in a sandbox.

#![allow(unreachable_pub, missing_docs)]
// Several programs of tests share this module, and none needs all of it.
#![allow(dead_code, unused_imports, unused_macros)]
// A test that cannot have its server or its file has failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod acl;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod compiled;
pub mod endpoint;
pub mod limit;
pub mod longer;
pub mod name;
pub mod proxy;
pub mod pty;
pub mod python;
pub mod quorum;
pub mod random;
pub mod sandbox;
pub mod sentinels;
pub mod server;
pub mod trace;

pub use acl::{rule, set_up};
pub use client::{Client, took_turns};
pub use cluster::Cluster;
pub use compiled::STORM;
pub use endpoint::{Endpoint, Old};
pub use limit::{Process, Stream, limit, output_of, set_limit, until};
pub use longer::LongerWait;
pub use name::Name;
pub use proxy::Proxy;
pub use pty::{Terminal, bash, ends};
pub use python::{python, yaml};
pub use sandbox::{Refused, refuse};
pub use sentinels::Service;
pub use server::{Server, free_port, send_signal};
pub use trace::{Paused, kill_at};

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::LazyLock;

use nix::libc;
use rlock::rules::{Key, Prefix};
use serde_json::Value;

/// The tests expect that signals have their usual effect, on them and on what they start, even if
/// they were started under nohup, in the background of a script, or with signals blocked.
#[used]
#[unsafe(link_section = ".init_array")]
static RESET_SIGNALS: extern "C" fn() = {
    extern "C" fn reset() {
        // SAFETY: it runs before all else, and the calls take numbers and a set that lives.
        unsafe {
            for signal in 1..=libc::SIGRTMAX() {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        }
    }
    reset
};

/// Runs these tests of the same file once more on `local:`.
macro_rules! also_on_local {
    ($($test:ident),+ $(,)?) => {
        mod in_files {
            $(#[test]
            fn $test() {
                crate::support::server::on_local(super::$test);
            })+
        }
    };
}
pub(crate) use also_on_local;

/// Runs these tests of the same file once more in a sandbox that refuses the fast way to start a
/// process.
macro_rules! also_without_vfork {
    ($($test:ident),+ $(,)?) => {
        mod without_vfork {
            $(#[test]
            fn $test() {
                crate::support::limit::set_sandbox(crate::support::sandbox::without_vfork);
                super::$test();
            })+
        }
    };
}
pub(crate) use also_without_vfork;

impl Server {
    /// An rlock that uses this server and inherits no settings.
    pub fn rlock<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = rlock(arguments);
        command.env("RLOCK_URL", self.url());
        command
    }

    /// Runs an rlock that uses this server, with the words of this line.
    #[track_caller]
    pub fn run(&self, line: &str) -> Output {
        run(&mut self.rlock(line.split_whitespace()))
    }

    /// Lets it know the scripts, so that it is sent none of them in full.
    pub fn learns_the_scripts(&self) {
        let token = acquire(self, &[], "warm");
        for line in [
            &format!("renew warm {token}"),
            "release --force --id ffffffff warm",
            "release --force --now warm",
            "inspect warm",
            "inspect",
        ] {
            self.run(line);
        }
    }

    /// A lock as inspect shows it; null if it is free.
    #[track_caller]
    pub fn inspect(&self, name: &str) -> Value {
        let output = run(&mut self.rlock(["inspect", "--json", name]));
        let document: Value = serde_json::from_str(&output.out()).unwrap();
        assert_eq!(output.code(), i32::from(document["locks"][0]["state"] == "free"), "{output:?}");
        document["locks"][0].clone()
    }

    /// Waiters of a free lock are dead, and do not count.
    #[track_caller]
    pub fn is_free(&self, name: &str) -> bool {
        self.inspect(name)["state"] == "free"
    }

    /// What is left of the longest lease, in milliseconds.
    #[track_caller]
    pub fn lease_left(&self, name: &str) -> u64 {
        self.inspect(name)["ttl_ms"].as_u64().unwrap()
    }

    #[track_caller]
    pub fn fence(&self, name: &str) -> u64 {
        self.inspect(name)["fence"].as_u64().unwrap()
    }

    /// How many clients wait for a lock that is held.
    #[track_caller]
    pub fn waiting(&self, name: &str) -> usize {
        self.inspect(name)["waiters"].as_array().unwrap().len()
    }

    /// Makes the holder lose the lock.
    #[track_caller]
    pub fn revoke(&self, name: &str) {
        if self.is_local() {
            let output = run(&mut self.rlock(["release", "--force", "--now", name]));
            assert_eq!(output.code(), 0, "{output:?}");
            assert!(output.out().contains("revoked"), "{output:?}");
        } else {
            assert_eq!(self.cli(&["DEL", &format!("rlock:{name}")]), "1");
        }
    }

    /// All stored data about a lock, to detect changes.
    pub fn stored(&self, name: &str) -> Vec<String> {
        if self.is_local() {
            let mut state = self.state_of(name);
            // Every release adds to the ended tokens.
            state["lock"]["tombstones"].take();
            return vec![state.to_string()];
        }
        let questions = [
            format!("GET rlock:{name}"),
            format!("ZRANGE {} 0 -1 WITHSCORES", side_key(name, "holds")),
            format!("HGETALL {}", side_key(name, "state")),
            format!("ZRANGE {} 0 -1 WITHSCORES", side_key(name, "queue")),
        ];
        // The fields of a hash come in any order, and `cli` trims the end of the last one.
        let sorted = |reply: String| {
            let lines = reply.lines().map(str::trim_end);
            let mut lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
            lines.sort_unstable();
            lines.join("\n")
        };
        let ask = |ask: &String| sorted(self.cli(&ask.split(' ').collect::<Vec<_>>()));
        questions.iter().map(ask).collect()
    }

    /// The token of the first waiter, which rlock itself shows to nobody.
    pub fn waiters_token(&self, name: &str) -> String {
        if !self.is_local() {
            return self.cli(&["ZRANGE", &side_key(name, "queue"), "0", "0"]);
        }
        self.state_of(name)["lock"]["queue"][0]["token"].as_str().unwrap().to_owned()
    }

    /// The list on which a waiter with this token blocks.
    pub fn mailbox(&self, name: &str, token: &str) -> String {
        let hash = self.cli(&["EVAL", "return redis.sha1hex(ARGV[1])", "0", token]);
        side_key(name, &format!("mail:{hash}"))
    }

    /// Makes a lock unreadable.
    pub fn spoil(&self, name: &str) {
        if self.is_local() {
            std::fs::write(self.file_of(name), "x").unwrap();
        } else {
            let state = side_key(name, "state");
            self.cli(&["DEL", &state]);
            self.cli(&["SET", &state, "x"]);
        }
    }

    /// Deletes all stored data. No client may use a lock meanwhile.
    pub fn forget_all(&self) {
        if self.is_local() {
            std::fs::remove_dir_all(self.locks()).unwrap();
        } else {
            self.cli(&["FLUSHALL"]);
        }
    }

    fn file_of(&self, name: &str) -> PathBuf {
        self.locks().join(format!(".rlock:{name}.state"))
    }

    /// The newest copy of the state of a lock on `local:`.
    fn state_of(&self, name: &str) -> Value {
        let file = std::fs::read_to_string(self.file_of(name)).unwrap();
        // Each copy begins with its sequence number. Its state is JSON, followed by padding.
        let newest = file.split("rlock lock 1 ").max().unwrap();
        let (_, state) = newest.split_once('\n').unwrap();
        serde_json::Deserializer::from_str(state).into_iter().next().unwrap().unwrap()
    }

    /// Runs a line on this server, and reads what it prints as JSON.
    #[track_caller]
    pub fn json(&self, line: &str) -> Value {
        self.run(line).json()
    }

    /// Runs an exec with the options and the lock on this line around a shell script. There, `$rlock`
    /// is the binary.
    #[track_caller]
    pub fn exec_script(&self, line: &str, script: &str) -> Output {
        let exec = format!("exec {line} sh -c");
        let words = exec.split_whitespace().chain([script]);
        run(self.rlock(words).env("rlock", binary()))
    }

    /// Runs a script in the directory of this server. There, `$rlock` uses this server.
    #[track_caller]
    pub fn bash(&self, script: &str) -> Output {
        run(self.program("bash -c", script).current_dir(self.directory()))
    }
}

/// The binary under test: the one that Cargo has built, unless `RLOCK_TEST_BINARY` names another.
pub fn binary() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| {
        std::env::var("RLOCK_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_rlock").into())
    });
    &BINARY
}

/// The binary under test, without the settings in the environment of the tests.
pub fn rlock<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = without_settings(binary());
    command.args(arguments);
    command
}

/// A program that does not inherit the settings in the environment of the tests.
pub fn without_settings(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RLOCK_") {
            command.env_remove(name);
        }
    }
    command
}

/// An rlock that uses these servers, with the words of this line.
pub fn at(urls: &str, line: &str) -> Command {
    let mut command = rlock(line.split_whitespace());
    command.env("RLOCK_URL", urls);
    command
}

/// What tests ask of a finished command.
pub trait Finished {
    fn code(&self) -> i32;
    fn out(&self) -> String;
    fn err(&self) -> String;
    fn exits(self, status: i32) -> Self;
    /// Checks what is on stdout.
    fn prints(self, text: &str) -> Self;
    /// Checks that stderr contains a text.
    fn says(self, part: &str) -> Self;
    /// Checks that stdout contains a text.
    fn shows(self, part: &str) -> Self;
    /// What is on stdout, as JSON.
    fn json(&self) -> Value;
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

    #[track_caller]
    fn exits(self, status: i32) -> Self {
        assert_eq!(self.code(), status, "{self:?}");
        self
    }

    #[track_caller]
    fn prints(self, text: &str) -> Self {
        assert_eq!(self.out(), text, "{self:?}");
        self
    }

    #[track_caller]
    fn says(self, part: &str) -> Self {
        assert!(self.err().contains(part), "no {part:?}: {self:?}");
        self
    }

    #[track_caller]
    fn shows(self, part: &str) -> Self {
        assert!(self.out().contains(part), "no {part:?}: {self:?}");
        self
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.out()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command to its end, and checks that it did not panic.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let output = output_of(command.stdin(Stdio::null()));
    let err = output.err();
    assert!(!err.contains("a bug, please"), "{command:?}: {err}");
    output
}

/// A command that runs in the background, with its three streams connected to the test.
pub struct Running {
    pub process: Process,
    pub stdin: Option<ChildStdin>,
    stdout: Stream,
    stderr: Stream,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(command);
        let (stdin, stdout, stderr) = (process.stdin(), process.stdout(), process.stderr());
        Self { process, stdin, stdout, stderr }
    }

    /// Waits for its first line.
    #[track_caller]
    pub fn prints_first(mut self, line: &str) -> Self {
        assert_eq!(self.line(), line);
        self
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the next line of stdout.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.stdout_line() {
            Some(line) => line,
            None => panic!("stdout ended; stderr: {}", self.stderr.so_far()),
        }
    }

    /// Waits for the next line of stdout, or its end.
    #[track_caller]
    pub fn stdout_line(&mut self) -> Option<String> {
        self.stdout.line("a line")
    }

    /// Waits for the next line of stderr that contains `part`.
    #[track_caller]
    pub fn told(&mut self, part: &str) -> String {
        let what = format!("a line with {part:?}");
        let Some(shown) = self.stderr.through(part, &what) else {
            panic!("stderr ended without {part:?}: {}", self.stderr.so_far());
        };
        let rest = self.stderr.line(&what).unwrap_or_default();
        shown.rsplit('\n').next().unwrap().to_owned() + &rest
    }

    /// Whether it prints this on stderr before it ends.
    pub fn says_later(&mut self, part: &str) -> bool {
        self.stderr.through(part, "its end").is_some()
    }

    /// Lets a `read` in the command return.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is still open");
        writeln!(stdin, "{line}").unwrap();
    }

    pub fn signal(&self, signal: &str) {
        send_signal(self.pid(), signal);
    }

    /// Sends a signal and waits for the end.
    #[track_caller]
    pub fn ends_by(self, signal: &str) -> Output {
        self.signal(signal);
        self.end()
    }

    /// Closes stdin and waits for the end.
    #[track_caller]
    pub fn finish(mut self) -> Output {
        drop(self.stdin.take());
        self.end()
    }

    #[track_caller]
    pub fn end(mut self) -> Output {
        let stdout = self.stdout.rest("its end");
        let stderr = self.stderr.rest("its end");
        Output { status: self.process.wait().unwrap(), stdout, stderr }
    }
}

/// Lets a Lua script write the details of a token by name, as rlock's scripts do. KEYS[3] is the state.
pub const DETAILS: &str = concat!(
    "local fields, TOKEN, STATE = {}, '', KEYS[3]\n",
    include_str!("../../lua/details.lua"),
);

/// The name of a key beside that of a lock.
pub fn side_key(name: &str, what: &str) -> String {
    Key::new(&Prefix::default(), &name.parse().unwrap()).side(what)
}

/// A shell command that prints READY and then waits for a line or the end of stdin.
pub const READY: &str = "echo READY; read _ || :";

/// Starts an exec that holds the lock until `finish`.
#[track_caller]
pub fn holder(server: &Server, options: &[&str], name: &str) -> Running {
    let exec = [&["exec"], options, &[name, "--", "sh", "-c", READY]].concat();
    Running::start(&mut server.rlock(exec)).prints_first("READY")
}

/// Starts an exec that holds the lock. Its command prints STOPPING on SIGTERM, and then waits for a
/// line before it exits.
#[track_caller]
pub fn holder_that_cleans_up(server: &Server, name: &str) -> Running {
    let script = "trap 'echo STOPPING; read _; exit' TERM; echo READY
        while :; do sleep 0.01; done";
    let options = ["exec", "--ttl", "6s", name, "bash", "-c", script];
    Running::start(&mut server.rlock(options)).prints_first("READY")
}

/// Starts an exec that waits in the queue, and prints ENTERED and `word` once it holds the lock.
#[track_caller]
pub fn waiter(server: &Server, options: &[&str], name: &str, word: &str) -> Running {
    let enter = format!("echo ENTERED {word}");
    let exec = [&["exec"], options, &[name, "--", "sh", "-c", &enter]].concat();
    Running::start(&mut server.rlock(exec)).tells("waiting at position")
}

/// Acquires a lock and returns its token.
#[track_caller]
pub fn acquire(server: &Server, options: &[&str], name: &str) -> String {
    run(&mut server.rlock([&["acquire"], options, &[name]].concat())).exits(0).out()
}

/// A server on which an exec holds the lock L until `finish`.
#[track_caller]
pub fn held(options: &[&str]) -> (Server, Running) {
    let server = Server::start();
    let holder = holder(&server, options, "L");
    (server, holder)
}

/// A server on which the lock L is acquired, and its token.
#[track_caller]
pub fn acquired(options: &[&str]) -> (Server, String) {
    let server = Server::start();
    let token = acquire(&server, options, "L");
    (server, token)
}

/// Whether the process has ended. A zombie counts as ended.
pub fn is_gone(pid: &str) -> bool {
    let state = std::fs::read(format!("/proc/{pid}/stat"));
    state.map_or(true, |state| String::from_utf8_lossy(&state).contains(") Z "))
}

impl Server {
    /// A directory of locks, without a server.
    pub fn local() -> Self {
        server::on_local(Self::start)
    }

    /// Starts an rlock on this server, with the words of this line and one more, such as a script.
    #[track_caller]
    pub fn starts(&self, line: &str, last: &str) -> Running {
        Running::start(&mut self.rlock(line.split_whitespace().chain([last])))
    }

    /// Another program, such as a shell, with the words of this line and one more. The rlock that it
    /// starts as `$rlock` uses this server.
    pub fn program(&self, line: &str, last: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = without_settings(words.next().unwrap());
        command.args(words).arg(last).env("rlock", binary()).env("RLOCK_URL", self.url());
        command
    }

    /// A shell script that runs as root in new namespaces, such as `--mount`.
    pub fn contained(&self, namespaces: &str, script: &str) -> Command {
        self.program(&format!("unshare --user --map-root-user {namespaces} sh -c"), script)
    }

    /// Makes the holder of L lose the lock, and waits for its end.
    #[track_caller]
    pub fn revokes(&self, holder: Running) -> Output {
        self.revoke("L");
        holder.end().exits(76)
    }

    /// Waits until L is renewed.
    #[track_caller]
    pub fn is_renewed(&self) {
        Client::of(self.url()).sees_a_renewal();
    }
}

impl Running {
    /// Waits for a first line of stderr that contains `part`.
    #[track_caller]
    pub fn tells(mut self, part: &str) -> Self {
        self.told(part);
        self
    }
}

/// The blocks of code below a heading of any page.
#[track_caller]
pub fn blocks_of(page: &str, heading: &str) -> Vec<String> {
    let section = page.split(&format!("\n{heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n##").next().unwrap();
    let fenced = section.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap().1.to_owned()).collect()
}
