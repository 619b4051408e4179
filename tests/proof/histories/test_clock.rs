//! A server whose scripts take the time from a key, so that a test can set it.

use std::time::Duration;

use rlock::report::Diagnostic;
use rlock::rules::Failure;
use rlock::store::Interrupt;
use rlock::store::server::scripts::Call;
use rlock::store::server::topology::Topology;
use rlock::store::server::{Node, RedisStore, Reply};
use rlock::store::wire::{Address, Cmd, Value, cmd};

/// Replaces what reads the server's clock in `lua/transaction.lua`. `test:now` is the time, and
/// `test:until` is the time at which the guard expires.
const CLOCK: &str = "
local function clock()
  local now = tonumber(redis.call('GET', 'test:now'))
  return now, now * 1000
end
local function read_guard()
  local till = redis.call('GET', 'test:until')
  if till and tonumber(till) < (clock()) then redis.call('DEL', GUARD, 'test:until') end
  return redis.pcall('GET', GUARD)
end
local function write_guard(token, till)
  redis.call('SET', GUARD, token)
  redis.call('SET', 'test:until', till)
end
local function guard_left()
  local till = redis.call('EXISTS', GUARD) == 1 and redis.call('GET', 'test:until')
  if redis.call('EXISTS', GUARD) == 0 then return -2 end
  return till and tonumber(till) - (clock()) or -1
end
";

/// How many holds or waiters one call drops or admits at most: few, so that short histories exceed
/// it.
pub(super) const BATCH: usize = 3;

/// One server with the changed scripts.
pub(super) struct TestClock(Node);

impl TestClock {
    pub(super) fn store(url: &str) -> RedisStore<Self> {
        let address = Address::parse(url).unwrap();
        let node = Node::new(address, Duration::from_secs(10), None).unwrap();
        RedisStore::new(Self(node), 0, 0)
    }

    pub(super) fn send(&mut self, words: &[&str]) -> Value {
        self.0.ask(cmd(words[0]).arg(&words[1..]).to_owned(), None).unwrap()
    }
}

impl Topology for TestClock {
    fn run(&mut self, call: &Call, interrupt: Interrupt<'_>) -> Result<Reply, Failure> {
        let command = call.command(true, false);
        let mut words = command.args_iter().map(|word| match word {
            redis::Arg::Simple(word) => word,
            _ => unreachable!("no script takes a cursor"),
        });
        let (eval, source) = (words.next().unwrap(), words.next().unwrap());
        let mut changed = Cmd::new();
        changed.arg(eval).arg(on_the_clock(std::str::from_utf8(source).unwrap()));
        let value = self.0.ask(changed.arg(words.collect::<Vec<_>>()).to_owned(), interrupt)?;
        Ok(Reply { value, repeated: false, unconfirmed: None })
    }

    fn last(&mut self) -> (&mut Node, bool) {
        (&mut self.0, false)
    }

    fn masters(&mut self) -> Result<Vec<&mut Node>, Failure> {
        Ok(vec![&mut self.0])
    }

    fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        Vec::new()
    }
}

fn on_the_clock(source: &str) -> String {
    const SHIPPED: &str = "local BATCH = 100";
    let start = source.find("local function clock()").expect("every script has a clock");
    let end = source.find("local now, micros = clock()").expect("and uses it after that");
    // Not every script has batches.
    assert!(!source.contains("BATCH") || source.contains(SHIPPED), "the size of a batch");
    let rest = source[end..].replace(SHIPPED, &format!("local BATCH = {BATCH}"));
    format!("{}{CLOCK}{rest}", source[..start].replace(SHIPPED, &format!("local BATCH = {BATCH}")))
}
