//! `rlock` with settings of a test, such as the URLs of several servers.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Finished, READY, Running, binary, run, until, without_settings};

/// The settings, which are in the environment, and the words before the name of the program.
#[derive(Clone)]
pub struct Client(Vec<(&'static str, String)>, Vec<String>);

impl Client {
    pub fn of(url: impl Into<String>) -> Self {
        Self(Vec::new(), Vec::new()).with("RLOCK_URL", url)
    }

    #[must_use]
    pub fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.0.push((variable, value.into()));
        self
    }

    /// Starts every rlock by this program with these arguments.
    #[must_use]
    pub fn by(self, words: Vec<String>) -> Self {
        Self(self.0, words)
    }

    /// An rlock with the words of this line.
    pub fn rlock(&self, line: &str) -> Command {
        let words = self.1.iter().map(String::as_str).chain([binary()]);
        let mut words = words.chain(line.split_whitespace());
        let mut command = without_settings(words.next().unwrap());
        command.args(words);
        command.envs(self.0.iter().map(|(variable, value)| (variable, value)));
        command
    }

    /// Runs an rlock with the words of this line.
    #[track_caller]
    pub fn run(&self, line: &str) -> Output {
        run(&mut self.rlock(line))
    }

    /// Starts an rlock with the words of this line.
    #[track_caller]
    pub fn start(&self, line: &str) -> Running {
        Running::start(&mut self.rlock(line))
    }

    /// Starts an exec with these options and this lock, which runs a script.
    #[track_caller]
    pub fn exec(&self, line: &str, script: &str) -> Running {
        Running::start(self.rlock(&format!("exec {line}")).args(["sh", "-c", script]))
    }

    /// Starts an exec that holds the lock until `finish`.
    #[track_caller]
    pub fn holder(&self, line: &str) -> Running {
        self.exec(line, READY).prints_first("READY")
    }

    /// Starts an exec that waits in the queue, and prints ENTERED once it holds the lock.
    #[track_caller]
    pub fn waiter(&self, line: &str) -> Running {
        self.exec(line, "echo ENTERED").tells("waiting at position")
    }

    /// Acquires a lock and returns its token.
    #[track_caller]
    pub fn acquire(&self, line: &str) -> String {
        self.run(&format!("acquire {line}")).exits(0).out()
    }

    /// A lock as inspect shows it.
    #[track_caller]
    pub fn inspect(&self, name: &str) -> Value {
        self.run(&format!("inspect --json {name}")).json()["locks"][0].clone()
    }

    /// Waits until the hold of L is renewed.
    #[track_caller]
    pub fn sees_a_renewal(&self) {
        let renewed = || self.inspect("L")["holders"][0]["renewed_at"].clone();
        let before = renewed();
        until("it is renewed", || renewed() != before && renewed().is_string());
    }

    /// Starts a worker in this directory, which takes turns in the lock until there is a file `stop`.
    #[track_caller]
    pub fn worker(&self, directory: &Path, lock: &str) -> Running {
        // A turn reads a number and writes the next one. Two at once would lose a count.
        const TURNS: &str = r#"turns=0
            until [ -e stop ]; do
                "$0" exec $1 sh -c 'n=$(cat $0); sleep 0.02; echo $((n + 1)) >$0' $1 || exit
                turns=$((turns + 1))
            done
            echo $turns"#;
        let mut shell = without_settings("sh");
        shell.args(["-c", TURNS, binary(), lock]).current_dir(directory);
        shell.envs(self.0.iter().map(|(variable, value)| (variable, value)));
        Running::start(&mut shell)
    }
}

/// Lets the workers of each of these locks end, and checks that no two had a turn at once.
#[track_caller]
pub fn took_turns(directory: &Path, locks: &[String], workers: Vec<Running>) {
    fs::write(directory.join("stop"), "").unwrap();
    let turns = |worker: Running| worker.end().exits(0).out().parse::<usize>().unwrap();
    let turns: usize = workers.into_iter().map(turns).sum();
    let count = |lock: &String| fs::read_to_string(directory.join(lock)).unwrap();
    let counts = locks.iter().map(|lock| count(lock).trim().parse::<usize>().unwrap());
    assert_eq!(counts.sum::<usize>(), turns);
}
