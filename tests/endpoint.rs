//! One name that a provider moves: in a failover it leads to another server, while the old one stays
//! up. Here the name is a link to a Unix socket.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::support::server::options_of_a_replica;
use crate::support::{Client, Finished, Server, until};

/// A name that leads to one of two servers.
struct Name {
    master: Server,
    replica: Server,
    directory: TempDir,
}

/// What the old master does once the name leads to the new one.
#[derive(Clone, Copy, Debug)]
enum Old {
    /// It becomes a replica of the new one, and keeps its connections.
    Demoted,
    /// It becomes a replica, and closes its connections.
    Cut,
    /// It stays a master, but refuses writes without a replica.
    WithoutReplicas,
}

impl Name {
    /// The name leads to a master, which has a replica.
    fn new() -> Self {
        let master = Server::on_tcp(&[]);
        let [option, host, port] = options_of_a_replica(master.port());
        let replica = Server::on_tcp(&[&option, &host, &port]);
        until("the replica is connected", || master.cli(&["INFO"]).contains("state=online"));
        let name = Self { master, replica, directory: tempfile::tempdir().unwrap() };
        name.leads_to(&name.master);
        name
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("name")
    }

    fn client(&self) -> Client {
        Client::of(format!("unix://{}", self.path().display())).with("RLOCK_TTL", "3s")
    }

    fn leads_to(&self, server: &Server) {
        let new = self.directory.path().join("new");
        symlink(server.socket(), &new).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    /// Waits until the replica has all that the master has.
    fn replicates(&self) {
        let offset = |server: &Server| {
            let told = server.cli(&["INFO", "replication"]);
            let line = told.lines().find_map(|it| it.strip_prefix("master_repl_offset:"));
            line.unwrap().trim().to_owned()
        };
        until("the replica has caught up", || offset(&self.replica) == offset(&self.master));
    }

    /// Promotes the replica, to which the name leads from now on.
    fn fails_over(&self, old: Old) {
        self.replica.cli(&["REPLICAOF", "NO", "ONE"]);
        self.leads_to(&self.replica);
        match old {
            Old::WithoutReplicas => {
                self.master.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
            }
            Old::Demoted | Old::Cut => {
                let [_, host, port] = options_of_a_replica(self.replica.port());
                self.master.cli(&["REPLICAOF", &host, &port]);
            }
        }
        if matches!(old, Old::Cut) {
            self.master.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
    }
}

#[test]
fn a_failover_behind_one_name_harms_no_client_whose_hold_the_new_master_has() {
    for old in [Old::Demoted, Old::Cut, Old::WithoutReplicas] {
        let name = Name::new();
        let client = name.client();
        let holder = client.holder("L");
        let waiter = client.waiter("L");
        let tokens = ["A", "B", "C"].map(|lock| client.acquire(lock));
        name.replicates();
        name.fails_over(old);
        let at_new = Client::of(name.replica.url());
        let renewed = || at_new.inspect("L")["holders"][0]["renewed_at"].clone();
        let before = renewed();
        until("the holder is renewed by the new master", || renewed() != before);
        assert_eq!(at_new.inspect("L")["waiters"].as_array().unwrap().len(), 1, "{old:?}");
        client.run(&format!("renew --ttl 30s A {}", tokens[0])).exits(0);
        client.run(&format!("release B {}", tokens[1])).exits(0);
        client.run("release --force --now C").exits(0);
        holder.finish().exits(0);
        waiter.end().exits(0).prints("ENTERED");
        assert_eq!(at_new.run("inspect --names").out(), "A", "{old:?}");
    }
}

#[test]
fn a_hold_that_the_new_master_never_received_is_lost_at_the_next_renewal() {
    let name = Name::new();
    name.replica.cli(&["REPLICAOF", "NO", "ONE"]);
    let holder = name.client().holder("L");
    name.fails_over(Old::Demoted);
    holder.end().exits(76).says("the lock was forgotten by the server");
}

#[test]
fn a_replica_behind_the_name_ends_no_hold_and_a_wait_with_a_limit_outlasts_it() {
    let name = Name::new();
    // It has none of the locks, and answers from its own data.
    let [_, host, _] = options_of_a_replica(0);
    name.replica.cli(&["REPLICAOF", "NO", "ONE"]);
    name.replica.cli(&["FLUSHALL"]);
    name.replica.cli(&["REPLICAOF", &host, "1"]);
    let client = name.client();
    let holder = client.holder("-v --ttl 20s --kill-after 100ms L");
    let token = client.acquire("--ttl 30s A");
    name.leads_to(&name.replica);
    name.master.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let waiter = client.start("exec -w 1m B true").tells("is a replica; retrying");
    client.run("exec -n B true").exits(78).says("is a replica; use the address of the master");
    let holder = holder.tells("not renewed: ");
    let released = client.start(&format!("release A {token}")).tells("not released yet: ");
    name.leads_to(&name.master);
    waiter.end().exits(0).says("the server is answering again");
    released.end().exits(0);
    holder.finish().exits(0);
}

#[test]
fn a_waiter_behind_a_proxy_without_blpop_polls_and_says_so() {
    let server = Server::with(&["--rename-command", "BLPOP", ""]);
    let client = Client::of(server.url()).with("RLOCK_TTL", "3s");
    let holder = client.holder("L");
    server.cli(&["CONFIG", "RESETSTAT"]);
    let limited = client.run("exec -w 5s L true").exits(75);
    let told = "does not support the command BLPOP; asking at most every 1s instead";
    assert_eq!(limited.err().matches(told).count(), 1, "{limited:?}");
    let calls = server.calls_of("evalsha") + server.calls_of("eval");
    assert!(calls <= 15, "{calls} calls in 5 s, of them 2 renewals");
    let waiter = client.start("exec L echo ENTERED").tells("asking at most every 1s");
    holder.finish().exits(0);
    waiter.end().exits(0).prints("ENTERED");
}
