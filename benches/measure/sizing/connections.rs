//! How many connections clients keep open.

use crate::statistics::connections;
use crate::support::cluster::Cluster;
use crate::support::{self, Running, Server};

pub(super) fn measure(single: &Server, quorum: &[Server]) {
    println!("  connections that stay open:");
    report("one server", &single.url(), &|| connections(single));
    let urls: Vec<String> = quorum.iter().map(Server::url).collect();
    report("each server of a quorum", &urls.join(" "), &|| connections(&quorum[0]));
    let cluster = Cluster::start(3, 0);
    let all = || (0..cluster.count()).map(|node| connections(cluster.node(node))).sum();
    // The URL names a master that does not have the lock, as most do in a large cluster.
    let seed = (cluster.owner(0, "rlock:busy") + 1) % cluster.count();
    report("all masters of a cluster", &cluster.url_of(seed), &all);
}

fn report(what: &str, url: &str, connections: &dyn Fn() -> f64) {
    let exec = |command: &str| {
        let mut exec = support::rlock(["exec", "busy", "--", "sh", "-c", command]);
        Running::start(exec.env("RLOCK_URL", url).env("RLOCK_TTL", super::quorum::TTL))
    };
    let before = connections();
    let mut holder = exec(support::READY);
    holder.line();
    let held = connections() - before;
    let mut waiter = exec("true");
    waiter.told("waiting at position");
    let both = connections() - before;
    println!("    {what}: holder {held}, waiter {}", both - held);
    holder.finish();
    waiter.finish();
}
