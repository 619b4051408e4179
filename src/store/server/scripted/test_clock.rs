//! A server whose clock is a key, so that a test can put it on.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use super::{Script, Scripted};
use crate::store::server::Single;
use crate::store::wire::{self, Address, Cmd, Value};

/// Replaces what depends on the server's clock in `lua/transaction.lua`: `test:now` is the time, and
/// `test:until` when the guard expires.
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

const BATCH: &str = "local BATCH = 100";

thread_local! {
    /// One of each, since they are never freed.
    static CHANGED: RefCell<HashMap<&'static str, Script>> = RefCell::default();
}

impl Scripted<Single> {
    pub(in crate::store) fn on_a_test_clock(address: Address, io_timeout: Duration) -> Self {
        let server = Single::new(address, io_timeout, None).expect("there is no TLS to prepare");
        Self { test_clock: true, ..Self::new(server, 0) }
    }

    pub(in crate::store) fn send_one(&mut self, command: Cmd) {
        assert!(self.topology.node.ask(command, None).is_ok());
    }

    pub(in crate::store) fn has_key(&mut self, key: &str) -> bool {
        let found = self.topology.node.ask(wire::cmd("EXISTS").arg(key).to_owned(), None);
        matches!(found, Ok(Value::Int(1)))
    }
}

impl Script {
    /// With the test's clock. The server does not know its hash, so it is sent in full.
    pub(super) fn on_a_test_clock(self) -> Self {
        let change = || {
            let source = self.source();
            let start = source.find("local function clock()").expect("every script has a clock");
            let end = source.find("local now, micros = clock()").expect("and used after it");
            let source = format!("{}{CLOCK}{}", &source[..start], &source[end..]);
            // As in the model, a few in tests. Not every script has batches.
            assert!(!source.contains("BATCH") || source.contains(BATCH), "the size of a batch");
            let source = source.replace(BATCH, "local BATCH = 3");
            Self::of(Box::leak(source.into_boxed_str()))
        };
        CHANGED.with_borrow_mut(|changed| *changed.entry(self.source()).or_insert_with(change))
    }
}
