//! A free lock around `true`, next to other tools.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{self, Server};
use crate::timing::{Named, RUNS, command, compare, works};

pub(crate) fn measure() {
    let server = Server::on_tcp(&[]);
    println!("a free lock around `true`, medians of {RUNS} runs, alternating with flock(1):");
    let url = server.tcp_url();
    let file = server.directory().join("flock").display().to_string();
    let port = server.port().to_string();
    let script = server.directory().join("lock.sh").display().to_string();
    std::fs::write(&script, SCRIPT).expect("the script can be written");
    let flock: Named<'_> = ("flock", &|| command("flock", &["-n", &file, "true"]));
    if !works(flock.1) {
        println!("  (skipped, because flock is not installed)");
        return;
    }
    let rlock = || {
        let mut command = support::rlock(["exec", "-n", "bench", "--", "true"]);
        command.env("RLOCK_URL", &url);
        command
    };
    compare(("rlock exec -n NAME -- true", &rlock), flock);
    let by_hand = || {
        let mut command = command("sh", &[&script]);
        command.env("PORT", &port);
        command
    };
    compare(("redis-cli SET and EVAL in sh", &by_hand), flock);
    match Etcd::start(server.directory()) {
        Some(etcd) => compare(("etcdctl lock NAME true", &|| etcd.lock()), flock),
        None => println!("  (etcdctl lock: skipped, because etcd or etcdctl is not installed)"),
    }
}

/// What many scripts do by hand. Nothing renews the lock.
const SCRIPT: &str = r#"
token=$(cat /proc/sys/kernel/random/uuid)
[ "$(redis-cli -p "$PORT" SET by-hand "$token" NX PX 30000)" = OK ] || exit 75
true
redis-cli -p "$PORT" EVAL 'if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1]) end' 1 by-hand "$token" >/dev/null
"#;

struct Etcd {
    process: Child,
    endpoint: String,
}

impl Etcd {
    fn start(directory: &Path) -> Option<Self> {
        let (client, peer) = (support::server::free_port(), support::server::free_port());
        let endpoint = format!("http://127.0.0.1:{client}");
        let peers = format!("http://127.0.0.1:{peer}");
        Command::new("etcdctl").arg("version").stdout(Stdio::null()).status().ok()?;
        let process = Command::new("etcd")
            .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}"), "--data-dir"])
            .arg(directory.join("etcd"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let etcd = Self { process, endpoint };
        support::until("etcd answers", || works(&|| etcd.lock()));
        Some(etcd)
    }

    fn lock(&self) -> Command {
        let mut command =
            command("etcdctl", &["--endpoints", &self.endpoint, "lock", "bench", "true"]);
        command.env("ETCDCTL_API", "3").stderr(Stdio::null());
        command
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
