//! Several independent servers, and `rlock` with all of them.

use std::process::Command;

use serde_json::Value;

use super::{Finished, READY, Running, Server, rlock, run};

/// The lease. A server votes only after it has been up for longer.
pub const TTL: &str = "3s";

/// rlock with these servers as a quorum, and a lease of [`TTL`].
pub fn at(servers: &[Server], arguments: &[&str]) -> Command {
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let mut command = rlock(arguments);
    command.env("RLOCK_URL", urls.join(" ")).env("RLOCK_TTL", TTL);
    command
}

/// Starts a command that holds the lock `L`.
pub fn holder(servers: &[Server], options: &[&str]) -> Running {
    let exec = [&["exec"], options, &["L", "sh", "-c", READY]].concat();
    let mut holder = Running::start(&mut at(servers, &exec));
    assert_eq!(holder.line(), "READY");
    holder
}

/// The lock `L`, as `inspect --json` shows it.
pub fn inspect(servers: &[Server]) -> Value {
    let told = run(&mut at(servers, &["inspect", "--json", "L"]));
    let document: Value = serde_json::from_str(&told.out()).unwrap();
    document[0].clone()
}
