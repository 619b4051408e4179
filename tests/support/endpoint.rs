//! One name that a provider moves: in a failover it leads to another server, while the old one stays
//! up. Here the name is a link to a Unix socket.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{Server, until};

/// A name that leads to one of two servers.
pub struct Endpoint {
    pub master: Server,
    pub replica: Server,
    directory: TempDir,
}

/// What the old master does once the name leads to the new one.
#[derive(Clone, Copy, Debug)]
pub enum Old {
    /// It becomes a replica of the new one, and keeps its connections.
    Demoted,
    /// It becomes a replica, and closes its connections.
    Cut,
    /// It stays a master, but refuses writes without a replica.
    WithoutReplicas,
    /// It stays a master.
    Master,
}

impl Endpoint {
    /// The name leads to a master, which has a replica.
    pub fn start() -> Self {
        Self::of(|| Server::on_tcp(&[]))
    }

    /// The name leads to a master, which has a replica, both started like this.
    pub fn of(start: impl Fn() -> Server) -> Self {
        let (master, replica) = (start(), start());
        replica.follows(master.port());
        let directory = tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap();
        let endpoint = Self { master, replica, directory };
        endpoint.replicates();
        endpoint.leads_to(&endpoint.master);
        endpoint
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("name")
    }

    pub fn url(&self) -> String {
        format!("unix://{}", self.path().display())
    }

    pub fn leads_to(&self, server: &Server) {
        let new = self.directory.path().join("new");
        symlink(server.socket(), &new).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    /// Waits until the replica is connected and has all that the master has.
    pub fn replicates(&self) {
        let offset = |server: &Server, role| {
            let told = server.cli(&["INFO", "replication"]);
            let mut lines = told.lines();
            let line = lines.find_map(|it| it.strip_prefix("master_repl_offset:"));
            told.contains(role).then(|| line.unwrap().trim().to_owned())
        };
        until("the replica has caught up", || {
            let has = offset(&self.replica, "master_link_status:up");
            has.is_some() && has == offset(&self.master, "state=online")
        });
    }

    /// Promotes the replica, to which the name leads from now on. It has all that the master had,
    /// unless it was promoted before.
    pub fn fails_over(&self, old: Old) {
        self.master.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
        if self.replica.cli(&["ROLE"]).starts_with("slave") {
            self.replicates();
            self.replica.promote();
        }
        self.leads_to(&self.replica);
        match old {
            Old::WithoutReplicas => {
                self.master.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
            }
            Old::Demoted | Old::Cut => self.master.follows(self.replica.port()),
            Old::Master => {}
        }
        self.master.cli(&["CLIENT", "UNPAUSE"]);
        if matches!(old, Old::Cut) {
            self.master.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
    }

    /// After a failover, the old master becomes the replica, if it is not yet.
    pub fn settle(&mut self) {
        self.master.follows(self.replica.port());
        self.master.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        std::mem::swap(&mut self.master, &mut self.replica);
    }
}
