//! What a free lock costs each server of a quorum.

use std::process::Stdio;

use super::ROUNDS;
use crate::load::Cost;
use crate::statistics::scripts;
use crate::support::{self, Server};

/// How long the servers of a quorum are up before they vote.
pub(super) const TTL: &str = "3s";
/// How many locks a round acquires and releases.
const PAIRS: usize = 100;

/// Real clients, because those of a quorum wait for the replies of several servers.
pub(super) fn measure(single: &Server, quorum: &[Server]) {
    quorum.iter().for_each(|server| server.await_uptime(4));
    println!("  `exec -n NAME -- true`, {PAIRS} a round, on each server:");
    let sides = [("one server", std::slice::from_ref(single)), ("quorum of three", quorum)];
    let mut costs = [Vec::new(), Vec::new()];
    let mut calls = [0, 0];
    for _ in 0..ROUNDS {
        for (side, (_, servers)) in sides.iter().enumerate() {
            servers[0].cli(&["CONFIG", "RESETSTAT"]);
            costs[side].push(Cost::of(&servers[0], PAIRS, || pairs(servers)));
            calls[side] += scripts(&servers[0]);
        }
    }
    for ((costs, calls), (name, _)) in costs.iter().zip(calls).zip(sides) {
        println!(
            "    {name}: {:.1} scripts, {:.0} µs of CPU time",
            calls as f64 / (PAIRS * ROUNDS) as f64,
            Cost::median(costs).micros
        );
    }
}

fn pairs(servers: &[Server]) {
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    for _ in 0..PAIRS {
        let mut command = support::rlock(["exec", "-n", "free", "--", "true"]);
        command.env("RLOCK_URL", urls.join(" ")).env("RLOCK_TTL", TTL).stdin(Stdio::null());
        assert!(command.status().is_ok_and(|status| status.success()));
    }
}
