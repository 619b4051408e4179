//! Scripts whose clock is a key, so that a test can set the time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use super::Script;
use crate::store::server::{Node, RedisStore};
use crate::store::wire::{self, Address, Cmd, Value};

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

/// Small in tests, so that short histories exceed it.
const BATCH: &str = "local BATCH = 100";

thread_local! {
    /// One of each script, because their sources are never freed.
    static CHANGED: RefCell<HashMap<&'static str, Script>> = RefCell::default();
}

impl Script {
    /// The same script with the test's clock. No server knows its hash, so it travels as source.
    pub(in crate::store) fn on_a_test_clock(self) -> Self {
        let change = || {
            let source = self.source();
            let start = source.find("local function clock()").expect("every script has a clock");
            let end = source.find("local now, micros = clock()").expect("and used after it");
            let source = format!("{}{CLOCK}{}", &source[..start], &source[end..]);
            // The model has the same small batches in tests. Not every script has batches.
            assert!(!source.contains("BATCH") || source.contains(BATCH), "the size of a batch");
            let source = source.replace(BATCH, "local BATCH = 3");
            Self::of(Box::leak(source.into_boxed_str()))
        };
        CHANGED.with_borrow_mut(|changed| *changed.entry(self.source()).or_insert_with(change))
    }
}

impl RedisStore<Node> {
    /// A store whose server takes the time from a key.
    pub(in crate::store) fn on_a_test_clock(address: Address, io_timeout: Duration) -> Self {
        let node = Node::new(address, io_timeout, None).expect("there is no TLS to prepare");
        let mut store = Self::new(node, 0, 0);
        store.test_clock = true;
        store
    }

    pub(in crate::store) fn send_one(&mut self, command: Cmd) {
        assert!(self.topology.ask(command, None).is_ok());
    }

    pub(in crate::store) fn has_key(&mut self, key: &str) -> bool {
        let found = self.topology.ask(wire::cmd("EXISTS").arg(key).to_owned(), None);
        matches!(found, Ok(Value::Int(1)))
    }
}
