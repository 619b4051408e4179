//! The server in the process of a test.

use std::time::Duration;

use std::cell::RefCell;

use redis::{Arg, Value};
use rlock::report::Diagnostic;
use rlock::rules::{Failure, FailureKind, UserMessage};
use rlock::store::Interrupt;
use rlock::store::server::scripts::Call;
use rlock::store::server::topology::Topology;
use rlock::store::server::{Node, RedisStore, Reply};

use super::redis::Redis;
use super::sandbox::Sandbox;

/// How many holds or waiters one call drops or admits at most: few, so that short histories exceed
/// it.
pub(crate) const BATCH: usize = 3;

thread_local! {
    /// Lua stays on one thread.
    static SANDBOX: RefCell<Sandbox> = RefCell::new(Sandbox::new());
}

/// The server in the process of this thread.
pub(crate) struct Shim;

impl Shim {
    /// The locks of a database: 0 or 1.
    pub(crate) fn store(database: u8) -> StoreOn<Self> {
        Self::redis(|redis| redis.home = database.into());
        Self::with(|sandbox| sandbox.steps.set(0));
        RedisStore::new(Played(Self), database.into(), 0)
    }

    pub(crate) fn with<T>(ask: impl FnOnce(&mut Sandbox) -> T) -> T {
        SANDBOX.with_borrow_mut(ask)
    }

    pub(crate) fn redis<T>(ask: impl FnOnce(&mut Redis) -> T) -> T {
        Self::with(|sandbox| ask(&mut sandbox.redis.borrow_mut()))
    }
}

/// A server on which histories are played.
pub(crate) trait Server: Send {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure>;

    fn set_time(&mut self, now: u64);

    /// Sends a command, as an operator or another tool does.
    fn send(&mut self, words: &[&str]);

    /// Lets its memory be full or not.
    fn fill(&mut self, is_full: bool);
}

impl Server for Shim {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure> {
        let read_only = false;
        let command = call.by_hash(read_only);
        let words = words_of(&command);
        let hash = str::from_utf8(words[1]).unwrap();
        if !Self::with(|sandbox| sandbox.has(hash)) {
            let whole = call.as_source(read_only);
            let source = in_small_batches(str::from_utf8(words_of(&whole)[1]).unwrap());
            Self::with(|sandbox| sandbox.load(hash, &source));
        }
        let count: usize = str::from_utf8(words[2]).unwrap().parse().unwrap();
        let (keys, arguments) = words[3..].split_at(count);
        let begins = |value: &Value, word: &[u8]| match value {
            Value::Array(words) => words.first() == Some(&Value::BulkString(word.to_vec())),
            _ => false,
        };
        if Self::redis(|redis| std::mem::take(&mut redis.asks_replica)) {
            let before = Self::redis(|redis| redis.clone());
            Self::redis(|redis| redis.is_replica = true);
            let told = Self::with(|sandbox| sandbox.run(hash, keys, arguments));
            Self::redis(|redis| *redis = before);
            let decides = |told: &Value| !begins(told, b"again");
            assert!(!told.as_ref().is_ok_and(decides), "a replica decides: {told:?}");
        }
        match Self::with(|sandbox| sandbox.run(hash, keys, arguments)) {
            Ok(value) => {
                // WAIT covers only what its own connection has written.
                let counts = begins(&value, b"granted") || begins(&value, b"renewed");
                let is_written = Self::redis(|redis| redis.has_replicated);
                assert!(is_written || !counts, "a reply that replicas cannot confirm: {value:?}");
                Ok(Reply { value, repeated: false, unconfirmed: None })
            }
            Err(error) => Err(Failure::new(FailureKind::Unavailable, UserMessage::new(error))),
        }
    }

    fn set_time(&mut self, now: u64) {
        Self::redis(|redis| redis.now = now);
    }

    fn fill(&mut self, is_full: bool) {
        Self::redis(|redis| redis.is_full = is_full);
    }

    fn send(&mut self, words: &[&str]) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        Self::redis(|redis| {
            redis.begin(redis.home);
            redis.call(&words).unwrap();
        });
    }
}

/// A server in place of those of a user.
pub(crate) struct Played<S>(pub(crate) S);

pub(crate) type StoreOn<S> = RedisStore<Played<S>>;

impl<S: Server> Topology for Played<S> {
    fn run(&mut self, call: &Call, _: Interrupt<'_>) -> Result<Reply, Failure> {
        self.0.run(call)
    }

    fn last(&mut self) -> &mut Node {
        panic!("a script gave an unexpected reply")
    }

    fn io_timeout(&mut self) -> Duration {
        Duration::from_secs(60)
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        Ok(Vec::new())
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        Vec::new()
    }
}

pub(super) fn words_of(command: &rlock::store::wire::Cmd) -> Vec<&[u8]> {
    let words = command.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        _ => unreachable!("no script takes a cursor"),
    });
    words.collect()
}

pub(super) fn in_small_batches(source: &str) -> String {
    const SHIPPED: &str = "local BATCH = 100";
    // Not every script has batches.
    assert!(!source.contains("BATCH") || source.contains(SHIPPED), "the size of a batch");
    source.replace(SHIPPED, &format!("local BATCH = {BATCH}"))
}
